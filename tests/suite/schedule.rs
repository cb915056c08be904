//! Runs several ticks in one seeded order: all of them stand at a named step but for the one that is let on, so that a seed
//! is one interleaving and always the same one.

use std::pin::Pin;

use reconciler::scan::steps::{Held, Step, Steps};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A run that is under way, one step at a time.
pub(crate) struct Actor<'a, T> {
    run: Pin<Box<dyn Future<Output = T> + 'a>>,
    steps: UnboundedReceiver<Held>,
    held: Option<Held>,
    result: Option<T>,
}

/// What an actor came to when it was let on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    Step(Step),
    End,
}

impl<'a, T> Actor<'a, T> {
    /// `start` is given the steps to run with.
    pub(crate) fn new<F: Future<Output = T> + 'a>(start: impl FnOnce(Steps) -> F) -> Self {
        let (watcher, steps) = unbounded_channel();
        Self { run: Box::pin(start(Steps::Watched(watcher))), steps, held: None, result: None }
    }

    /// Lets the actor on to its next step, or to its end.
    pub(crate) async fn go_on(&mut self) -> Reached {
        if let Some(held) = self.held.take() {
            held.go_on.send(()).expect("the actor waits");
        }
        tokio::select! {
            biased;
            Some(held) = self.steps.recv() => {
                let step = held.step;
                self.held = Some(held);
                Reached::Step(step)
            }
            result = self.run.as_mut() => {
                self.result = Some(result);
                Reached::End
            }
        }
    }

    /// Lets the actor on until it stands at `step`. Panics where it ends before.
    pub(crate) async fn go_on_to(&mut self, step: Step) {
        while self.go_on().await != Reached::Step(step) {
            assert!(self.result.is_none(), "the run has ended before {step:?}");
        }
    }

    /// Lets the actor run to its end.
    pub(crate) async fn finish(mut self) -> T {
        while self.result.is_none() {
            self.go_on().await;
        }
        self.result.take().expect("ended")
    }

    /// Whether it has ended.
    pub(crate) fn ended(&self) -> bool {
        self.result.is_some()
    }

    /// What it ended with.
    pub(crate) fn into_result(self) -> T {
        self.result.expect("it has ended")
    }
}
