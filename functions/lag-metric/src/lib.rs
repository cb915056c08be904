//! `lag-metric`
