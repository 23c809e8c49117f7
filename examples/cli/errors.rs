//! Errors as text for people at a command line, who do not call functions.

use reslot::{Client, Error, Misuse, Reason};

use crate::Failure;

/// An error of the server as the server put it, others in full.
pub(crate) fn message(client: &Client, error: &Failure) -> String {
    let Some(error) = error.downcast_ref::<Error>() else {
        return error.to_string();
    };
    match error {
        Error::Misuse(Misuse::Refused { command, why }) => refused(command, why),
        Error::Misuse(Misuse::CrossSlot { command, slots }) => format!(
            "{command}: keys of slots {} and {}; give all of them a common hash tag, as in \
             {{user:1}}name and {{user:1}}mail",
            slots.0, slots.1
        ),
        Error::Misuse(Misuse::Invalid(why)) => before_code(why).to_owned(),
        Error::Server(failure) => match failure.server_error() {
            Some(answer) => answer.line().to_owned(),
            None => error.to_string(),
        },
        Error::Unavailable(failure) if failure.reason() == Reason::NodeGone => {
            let known: Vec<_> = client.primaries().iter().map(ToString::to_string).collect();
            format!(
                "-n names no node of the cluster; its primaries: {}",
                known.join(", ")
            )
        }
        _ => error.to_string(),
    }
}

/// Whether it takes more than one connection, or cannot be run at all.
pub(crate) fn is_refused(error: &Failure) -> bool {
    let refused = |error: &Error| matches!(error, Error::Misuse(Misuse::Refused { .. }));
    error.downcast_ref().is_some_and(refused)
}

fn refused(command: &str, why: &str) -> String {
    let plain = before_code(why);
    match command {
        "MULTI" | "EXEC" | "DISCARD" => {
            format!("{command}: pipe MULTI, the commands and EXEC, one a line")
        }
        _ if why.contains("Route::Node") => format!("{command}: {plain}: name it by -n ADDR"),
        _ => format!("{command}: {plain}"),
    }
}

/// The reason; the remedy is for programs.
fn before_code(text: &str) -> &str {
    match text.split_once('`') {
        None => text,
        Some((before, _)) => match before.rsplit_once([':', ';']) {
            Some((reason, _)) => reason,
            None => "cannot be run here",
        },
    }
}
