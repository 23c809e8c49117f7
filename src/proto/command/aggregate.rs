//! One reply out of the replies of all primaries.

use crate::proto::value::Value;

/// How the replies of all primaries become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aggregate {
    /// All must succeed; the first reply stands for all.
    AllSucceed,
    /// One must succeed; its reply is the result.
    AnySucceeds,
    /// Integers are added up.
    Sum,
    /// Arrays are put one after the other.
    Concat,
    /// Arrays of 0 and 1: each place is 1 if it is 1 in every reply.
    AndPerIndex,
    /// The first reply that is not null; null if all are.
    FirstNonNull,
}

impl Aggregate {
    /// Whether commands whose replies are combined so may change something.
    pub(crate) fn may_change(self) -> bool {
        matches!(self, Self::AllSucceed | Self::AnySucceeds)
    }

    /// The one reply. An error among the replies is the result, except where one success suffices.
    /// `None` if there is no reply, or one that does not have the shape its command promises.
    pub(crate) fn combine(self, replies: Vec<Value>) -> Option<Value> {
        let is_error = |reply: &Value| matches!(reply, Value::Error(_));
        let preferred = match self {
            Self::AnySucceeds => replies.iter().position(|reply| !is_error(reply)),
            _ => replies.iter().position(is_error),
        };
        if let Some(position) = preferred {
            return replies.into_iter().nth(position);
        }
        let mut replies = replies.into_iter();
        let first = replies.next()?;
        match self {
            Self::AllSucceed | Self::AnySucceeds => Some(first),
            Self::FirstNonNull => {
                let mut all = std::iter::once(first).chain(replies);
                Some(
                    all.find(|reply| *reply != Value::Null)
                        .unwrap_or(Value::Null),
                )
            }
            Self::Sum => replies.try_fold(first, sum),
            Self::Concat => replies.try_fold(first, concat),
            Self::AndPerIndex => replies.try_fold(first, and),
        }
    }
}

fn sum(left: Value, right: Value) -> Option<Value> {
    match (left, right) {
        (Value::Integer(left), Value::Integer(right)) => {
            Some(Value::Integer(left.saturating_add(right)))
        }
        _ => None,
    }
}

fn concat(left: Value, right: Value) -> Option<Value> {
    match (left, right) {
        (Value::Array(mut left), Value::Array(right)) => {
            left.extend(right);
            Some(Value::Array(left))
        }
        (Value::Set(mut left), Value::Set(right)) => {
            left.extend(right);
            Some(Value::Set(left))
        }
        _ => None,
    }
}

fn and(left: Value, right: Value) -> Option<Value> {
    let (Value::Array(left), Value::Array(right)) = (left, right) else {
        return None;
    };
    if left.len() != right.len() {
        return None;
    }
    let both = left.into_iter().zip(right).map(|pair| match pair {
        (Value::Integer(left), Value::Integer(right)) => Some(Value::Integer(left & right)),
        _ => None,
    });
    both.collect::<Option<_>>().map(Value::Array)
}

#[cfg(test)]
mod tests {
    use super::Aggregate::*;
    use super::*;
    use crate::proto::value::ServerError;

    fn ints(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().copied().map(Value::Integer).collect())
    }

    #[test]
    fn each_kind_combines() {
        let int = Value::Integer;
        assert_eq!(Sum.combine(vec![int(1), int(2), int(3)]), Some(int(6)));
        assert_eq!(
            Sum.combine(vec![int(i64::MAX), int(1)]),
            Some(int(i64::MAX))
        );
        assert_eq!(
            Concat.combine(vec![ints(&[1]), ints(&[]), ints(&[2, 3])]),
            Some(ints(&[1, 2, 3]))
        );
        assert_eq!(
            AndPerIndex.combine(vec![ints(&[1, 1, 0]), ints(&[1, 0, 0])]),
            Some(ints(&[1, 0, 0]))
        );
        let (null, a) = (Value::Null, Value::Bulk(b"a".to_vec()));
        assert_eq!(FirstNonNull.combine(vec![null.clone(), a.clone()]), Some(a));
        assert_eq!(FirstNonNull.combine(vec![null.clone()]), Some(null));
        assert_eq!(AllSucceed.combine(vec![Value::Ok; 3]), Some(Value::Ok));
    }

    #[test]
    fn an_error_is_the_result_unless_one_success_suffices() {
        let error = Value::Error(ServerError::new(
            "NOTBUSY No scripts in execution right now.",
        ));
        for aggregate in [AllSucceed, Sum, Concat, AndPerIndex, FirstNonNull] {
            let replies = vec![Value::Integer(1), error.clone()];
            assert_eq!(aggregate.combine(replies), Some(error.clone()));
        }
        let replies = vec![error.clone(), Value::Ok, error.clone()];
        assert_eq!(AnySucceeds.combine(replies), Some(Value::Ok));
        assert_eq!(AnySucceeds.combine(vec![error.clone(); 2]), Some(error));
    }

    #[test]
    fn other_shapes_are_not_guessed_at() {
        for aggregate in [
            AllSucceed,
            AnySucceeds,
            Sum,
            Concat,
            AndPerIndex,
            FirstNonNull,
        ] {
            assert_eq!(aggregate.combine(vec![]), None);
        }
        assert_eq!(Sum.combine(vec![Value::Integer(1), Value::Ok]), None);
        assert_eq!(Concat.combine(vec![ints(&[]), Value::Ok]), None);
        assert_eq!(AndPerIndex.combine(vec![ints(&[1]), ints(&[1, 1])]), None);
    }
}
