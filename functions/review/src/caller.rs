//! Who decides.
//!
//! Lambda names a caller only where Cognito vouches for one (`Context::identity`). To a plain invocation, from the CLI, from an SDK
//! or from a CloudWatch dashboard, Lambda says nothing of who made it: **then the desk cannot know, and records that it does
//! not**, with the id of the request. CloudTrail's data events for the deciding function (they have to be switched on) name the
//! IAM principal of that id. What a payload, a client context or a widget's context says of the caller is a claim: it is
//! kept as one, in `claimed_by`, and never as the identity.
//!
//! On a laptop it is the login of the database.

/// Who is behind an invocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// What is known.
    pub identity: Identity,
    /// Lambda's id of the request, where there is one.
    pub request_id: Option<String>,
}

/// What vouches for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Cognito's identity, by its id.
    Cognito(String),
    /// The login of the database's session.
    DatabaseLogin(String),
    /// The invocation carries none.
    NotKnown,
}

impl Caller {
    /// The word in `reconciliation.review.who_is`.
    pub fn kind(&self) -> &'static str {
        match self.identity {
            Identity::Cognito(_) => "cognito",
            Identity::DatabaseLogin(_) => "database_login",
            Identity::NotKnown => "not_known",
        }
    }

    /// The name; where there is none, where it can be looked up.
    pub fn name(&self) -> String {
        match &self.identity {
            Identity::Cognito(name) | Identity::DatabaseLogin(name) => name.clone(),
            Identity::NotKnown => {
                format!("the caller of request {}", self.request_id.as_deref().unwrap_or("without an id"))
            }
        }
    }
}
