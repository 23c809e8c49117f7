//! Many calls of an async client at the same time.

use std::future::Future;

use futures_util::future::{join, try_join_all};
use tokio::time::{sleep, timeout};

use crate::contender::{Answer, Failure, Interlude, PATIENCE};

/// Awaits all calls together. The interlude passes meanwhile.
pub(crate) async fn join_with<T, E>(
    calls: impl Iterator<Item = impl Future<Output = Result<T, E>>>,
    interlude: Option<Interlude<'_>>,
) -> Answer
where
    Failure: From<E>,
{
    // An interlude comes with very many calls, and the question is not how fast they are.
    let patience = match &interlude {
        Some(_) => PATIENCE * 10,
        None => PATIENCE,
    };
    let calls = timeout(patience, try_join_all(calls));
    let interlude = async {
        if let Some(Interlude { pause, act }) = interlude {
            sleep(pause).await;
            act();
        }
    };
    let (all, ()) = join(calls, interlude).await;
    all??;
    Ok(())
}
