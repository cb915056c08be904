//! The named steps of a tick. Tests hold a tick at each of them, to try every interleaving and every place to die.

use tokio::sync::{mpsc, oneshot};

/// A place in a tick where something else may happen first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The cursor was read.
    CursorRead,
    /// The batch was loaded.
    Loaded,
    /// Stripe was asked.
    Observed,
    /// Everything is judged; the commit is next.
    Decided,
    /// The commit has answered.
    Committed,
}

impl Step {
    /// All steps in their order.
    pub const ALL: [Self; 5] = [Self::CursorRead, Self::Loaded, Self::Observed, Self::Decided, Self::Committed];
}

/// A tick that has come to a step and waits to be let on.
#[derive(Debug)]
pub struct Held {
    /// Where it stands.
    pub step: Step,
    /// Send to let it go on. Dropped unsent, it lets it go on as well.
    pub go_on: oneshot::Sender<()>,
}

/// Who is told of a tick's steps.
#[derive(Clone, Debug)]
pub enum Steps {
    /// Nobody: the tick runs through.
    Unwatched,
    /// This channel is, and the tick waits at each step until it is let on.
    Watched(mpsc::UnboundedSender<Held>),
}

impl Steps {
    /// The tick has come to `step`.
    pub async fn reach(&self, step: Step) {
        match self {
            Self::Unwatched => {}
            Self::Watched(watcher) => {
                let (go_on, wait) = oneshot::channel();
                if watcher.send(Held { step, go_on }).is_ok() {
                    // an error is the watcher's going away, which lets the tick on
                    wait.await.unwrap_or_default();
                }
            }
        }
    }
}
