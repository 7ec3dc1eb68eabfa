//! Answers that are kept for a while, so that a later request can name one instead of repeating it.
//! In memory only, and bounded: the oldest go first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// Most answers that are kept.
const MAX_ANSWERS: usize = 1024;
/// Most bytes of JSON, over all of them.
const MAX_BYTES: usize = 64 << 20;

/// An answer and what it answers.
#[derive(Debug)]
pub(crate) struct Answered {
    /// What was asked, that of earlier answers it goes on from included.
    pub(crate) input: Vec<Value>,
    /// The answer as its client got it.
    pub(crate) response: Value,
}

/// Answers by their names.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Shelf>);

#[derive(Default)]
struct Shelf {
    by_name: HashMap<String, (Arc<Answered>, usize)>,
    /// Names, the oldest first. Those that were removed may still be here.
    order: VecDeque<String>,
    bytes: usize,
}

impl Kept {
    /// Keeps an answer, unless it is larger than all of them may be.
    pub(crate) fn put(&self, name: String, answered: Answered) {
        let bytes = size(&answered.response) + answered.input.iter().map(size).sum::<usize>();
        if bytes > MAX_BYTES {
            return;
        }
        let mut shelf = self.lock();
        shelf.remove(&name);
        shelf.bytes += bytes;
        shelf.by_name.insert(name.clone(), (Arc::new(answered), bytes));
        shelf.order.push_back(name);
        while shelf.by_name.len() > MAX_ANSWERS || shelf.bytes > MAX_BYTES {
            let Some(oldest) = shelf.order.pop_front() else { return };
            shelf.remove(&oldest);
        }
    }

    /// The answer of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Answered>> {
        self.lock().by_name.get(name).map(|(answered, _)| answered.clone())
    }

    /// Forgets an answer; says whether it was there.
    pub(crate) fn remove(&self, name: &str) -> bool {
        self.lock().remove(name)
    }

    /// What is guarded is whole between calls, and no code of others runs under the lock.
    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn remove(&mut self, name: &str) -> bool {
        let Some((_, bytes)) = self.by_name.remove(name) else { return false };
        self.bytes -= bytes;
        self.order.retain(|kept| kept != name);
        true
    }
}

/// About how much memory a value takes.
fn size(value: &Value) -> usize {
    const NODE: usize = 64;
    match value {
        Value::String(text) => NODE + text.len(),
        Value::Array(list) => NODE + list.iter().map(size).sum::<usize>(),
        Value::Object(map) => {
            NODE + map.iter().map(|(key, value)| NODE + key.len() + size(value)).sum::<usize>()
        }
        _ => NODE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(bytes: usize) -> Answered {
        Answered { input: vec!["x".repeat(bytes).into()], response: Value::Null }
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_they_are_too_large() {
        let kept = Kept::default();
        for n in 0..=MAX_ANSWERS {
            kept.put(n.to_string(), answered(1));
        }
        assert!(kept.get("0").is_none() && kept.get("1").is_some());
        kept.put("large".to_owned(), answered(MAX_BYTES - 1000));
        assert!(kept.get(&MAX_ANSWERS.to_string()).is_some() && kept.get("2").is_none());
        kept.put("larger".to_owned(), answered(MAX_BYTES));
        assert!(kept.get("larger").is_none() && kept.get("large").is_some());
        assert!(kept.remove("large") && !kept.remove("large"));
        let shelf = kept.lock();
        let bytes: usize = shelf.by_name.values().map(|(_, bytes)| bytes).sum();
        assert_eq!((shelf.bytes, shelf.order.len()), (bytes, shelf.by_name.len()));
    }
}
