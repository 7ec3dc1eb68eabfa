//! What ranks say to each other beside their rows: orders of the first one and what others answer, as
//! frames of numbers and bytes.
//!
//! Whoever can reach the port can say this, as with MLX's own sockets beside it; what comes is checked
//! all the same, so that another program there is an error and nothing worse.

use std::io::{self, Read, Write};

use backend::{Batch, BlockId, KvGroup, SlotId, Span};

/// What a frame begins with.
const MAGIC: u32 = u32::from_le_bytes(*b"hrth");
/// More of either is no frame.
const MOST: u64 = 1 << 30;

/// What the first rank has others do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    /// Load a model, by a description that is [`super::Settings`].
    Load(Vec<u8>),
    /// Take part in a pass.
    Step(Pass),
    ReadBlock(KvGroup, BlockId),
    WriteBlock(KvGroup, BlockId, Vec<u8>),
    ReadState(SlotId),
    WriteState(SlotId, Vec<u8>),
    /// Forget the model. Nothing is answered.
    Unload,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is loaded. Bytes of a block of [`KvGroup::Full`] and of one of [`KvGroup::Windowed`], and of
    /// a state.
    Loaded([u64; 3]),
    /// It is done; what was asked for.
    Done(Vec<u8>),
    /// It failed, and nothing can go on.
    Failed(String),
    /// What is said unasked at first: which rank this is of how many, and what program.
    Here { rank: u64, ranks: u64, program: String },
}

/// A batch that can be compared.
#[derive(Clone, Debug)]
pub(super) struct Pass(pub(super) Batch);

impl PartialEq for Pass {
    fn eq(&self, other: &Pass) -> bool {
        numbers_of(&self.0) == numbers_of(&other.0)
    }
}

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    kind: u32,
    numbers: Vec<u64>,
    bytes: Vec<u8>,
}

/// A message that is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum Garbled {
    #[error("what was said makes no sense")]
    Nonsense,
    #[error(transparent)]
    Broken(#[from] io::Error),
}

impl Frame {
    fn new(kind: u32, numbers: impl Into<Vec<u64>>, bytes: &[u8]) -> Frame {
        Frame { kind, numbers: numbers.into(), bytes: bytes.to_vec() }
    }

    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut whole = Vec::with_capacity(24 + 8 * self.numbers.len() + self.bytes.len());
        whole.extend([MAGIC, self.kind].iter().flat_map(|x| x.to_le_bytes()));
        let sizes = [self.numbers.len() as u64, self.bytes.len() as u64];
        whole.extend(sizes.iter().chain(&self.numbers).flat_map(|x| x.to_le_bytes()));
        whole.extend(&self.bytes);
        out.write_all(&whole)
    }

    /// The next one. `None`: the other side has ended.
    pub(super) fn read(from: &mut impl Read) -> Result<Option<Frame>, Garbled> {
        let mut head = Vec::new();
        from.by_ref().take(24).read_to_end(&mut head)?;
        let Ok(head) = <[u8; 24]>::try_from(&head[..]) else {
            return if head.is_empty() { Ok(None) } else { Err(Garbled::Nonsense) };
        };
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let size = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let (n_numbers, n_bytes) = (size(8), size(16));
        if word(0) != MAGIC || n_numbers > MOST / 8 || n_bytes > MOST {
            return Err(Garbled::Nonsense);
        }
        // Memory is taken as it comes, not as it is announced.
        let mut rest = Vec::new();
        from.by_ref().take(8 * n_numbers + n_bytes).read_to_end(&mut rest)?;
        if rest.len() as u64 != 8 * n_numbers + n_bytes {
            return Err(Garbled::Nonsense);
        }
        let bytes = rest.split_off(8 * n_numbers as usize);
        let numbers = rest.as_chunks().0.iter().map(|x| u64::from_le_bytes(*x)).collect();
        Ok(Some(Frame { kind: word(4), numbers, bytes }))
    }
}

impl Order {
    pub(super) fn frame(&self) -> Frame {
        match self {
            Order::Load(settings) => Frame::new(0, [], settings),
            Order::Step(Pass(batch)) => Frame::new(1, numbers_of(batch), &[]),
            Order::ReadBlock(group, id) => Frame::new(2, [of_group(*group), (*id).into()], &[]),
            Order::WriteBlock(group, id, bytes) => {
                Frame::new(3, [of_group(*group), (*id).into()], bytes)
            }
            Order::ReadState(slot) => Frame::new(4, [(*slot).into()], &[]),
            Order::WriteState(slot, bytes) => Frame::new(5, [(*slot).into()], bytes),
            Order::Unload => Frame::new(6, [], &[]),
        }
    }

    pub(super) fn of(Frame { kind, numbers, bytes }: Frame) -> Result<Order, Garbled> {
        let id = |x: u64| u32::try_from(x).map_err(|_| Garbled::Nonsense);
        Ok(match (kind, &numbers[..]) {
            (0, []) => Order::Load(bytes),
            (1, numbers) => Order::Step(Pass(batch_of(numbers).ok_or(Garbled::Nonsense)?)),
            (2, [group, block]) => Order::ReadBlock(group_of(*group)?, id(*block)?),
            (3, [group, block]) => Order::WriteBlock(group_of(*group)?, id(*block)?, bytes),
            (4, [slot]) => Order::ReadState(id(*slot)?),
            (5, [slot]) => Order::WriteState(id(*slot)?, bytes),
            (6, []) => Order::Unload,
            _ => return Err(Garbled::Nonsense),
        })
    }
}

impl Answer {
    pub(super) fn frame(&self) -> Frame {
        match self {
            Answer::Loaded(bytes) => Frame::new(0, *bytes, &[]),
            Answer::Done(bytes) => Frame::new(1, [], bytes),
            Answer::Failed(why) => Frame::new(2, [], why.as_bytes()),
            Answer::Here { rank, ranks, program } => {
                Frame::new(3, [*rank, *ranks], program.as_bytes())
            }
        }
    }

    pub(super) fn of(Frame { kind, numbers, bytes }: Frame) -> Result<Answer, Garbled> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(match (kind, &numbers[..]) {
            (0, [full, windowed, state]) => Answer::Loaded([*full, *windowed, *state]),
            (1, []) => Answer::Done(bytes),
            (2, []) => Answer::Failed(text(bytes)),
            (3, [rank, ranks]) => Answer::Here { rank: *rank, ranks: *ranks, program: text(bytes) },
            _ => return Err(Garbled::Nonsense),
        })
    }
}

fn of_group(group: KvGroup) -> u64 {
    match group {
        KvGroup::Full => 0,
        KvGroup::Windowed => 1,
    }
}

fn group_of(number: u64) -> Result<KvGroup, Garbled> {
    match number {
        0 => Ok(KvGroup::Full),
        1 => Ok(KvGroup::Windowed),
        _ => Err(Garbled::Nonsense),
    }
}

/// A batch as numbers: every list after its length.
fn numbers_of(batch: &Batch) -> Vec<u64> {
    let mut out = Vec::new();
    let list = |out: &mut Vec<u64>, ids: &[u32]| {
        out.push(ids.len() as u64);
        out.extend(ids.iter().map(|id| u64::from(*id)));
    };
    list(&mut out, &batch.tokens);
    list(&mut out, &batch.want);
    out.push(batch.spans.len() as u64);
    for span in &batch.spans {
        out.extend([span.rows.start, span.rows.end, span.start].map(|x| x as u64));
        list(&mut out, &span.blocks);
        list(&mut out, &span.windowed);
        // No state is nought, and others are one more than they are.
        out.push(span.state_in.map_or(0, |slot| u64::from(slot) + 1));
        out.push(span.states_out.len() as u64);
        let states = span.states_out.iter();
        out.extend(states.flat_map(|(after, slot)| [*after as u64, u64::from(*slot)]));
    }
    out
}

/// [`numbers_of`] backwards. `None`: they are of no batch.
fn batch_of(numbers: &[u64]) -> Option<Batch> {
    let mut rest = numbers;
    let batch = read_batch(&mut rest)?;
    rest.is_empty().then_some(batch)
}

fn read_batch(rest: &mut &[u64]) -> Option<Batch> {
    let (tokens, want) = (read_ids(rest)?, read_ids(rest)?);
    let (n_spans, mut spans) = (read_size(rest)?, Vec::new());
    for _ in 0..n_spans {
        let rows = read_size(rest)?..read_size(rest)?;
        let start = read_size(rest)?;
        let (blocks, windowed) = (read_ids(rest)?, read_ids(rest)?);
        let state_in = match read(rest)? {
            0 => None,
            more => Some(u32::try_from(more - 1).ok()?),
        };
        let (n_states, mut states_out) = (read_size(rest)?, Vec::new());
        for _ in 0..n_states {
            states_out.push((read_size(rest)?, read(rest)?.try_into().ok()?));
        }
        if rows.start > rows.end || rows.end > tokens.len() {
            return None;
        }
        spans.push(Span { rows, start, blocks, windowed, state_in, states_out });
    }
    let known = want.iter().all(|row| (*row as usize) < tokens.len());
    known.then_some(Batch { tokens, spans, want })
}

fn read(rest: &mut &[u64]) -> Option<u64> {
    rest.split_off_first().copied()
}

fn read_size(rest: &mut &[u64]) -> Option<usize> {
    read(rest)?.try_into().ok()
}

fn read_ids(rest: &mut &[u64]) -> Option<Vec<u32>> {
    let n = read_size(rest)?;
    let ids = rest.split_off(..n)?;
    ids.iter().map(|id| (*id).try_into().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> Vec<Order> {
        let span = Span {
            state_in: Some(0),
            states_out: vec![(0, 3), (1, u32::MAX)],
            windowed: vec![9],
            ..Span::new(0..2, 31, vec![4, 7])
        };
        let new = Span { windowed: Vec::new(), ..Span::new(2..3, 0, vec![1]) };
        let batch = Batch { tokens: vec![5, 6, 7], spans: vec![span, new], want: vec![1, 2] };
        vec![
            Order::Load(b"{}".to_vec()),
            Order::Step(Pass(batch)),
            Order::Step(Pass(Batch::default())),
            Order::ReadBlock(KvGroup::Full, 3),
            Order::WriteBlock(KvGroup::Windowed, 4, vec![1, 2, 3]),
            Order::ReadState(1),
            Order::WriteState(u32::MAX, vec![0]),
            Order::Unload,
        ]
    }

    fn written(frame: &Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_said_is_understood() {
        let mut stream: Vec<u8> = orders().iter().flat_map(|o| written(&o.frame())).collect();
        let mut from = &stream[..];
        for order in orders() {
            let frame = Frame::read(&mut from).unwrap().unwrap();
            assert_eq!(Order::of(frame).unwrap(), order);
        }
        assert!(Frame::read(&mut from).unwrap().is_none(), "the end");
        let answers = [
            Answer::Loaded([1, 2, u64::MAX]),
            Answer::Done(vec![7]),
            Answer::Failed("why".into()),
            Answer::Here { rank: 1, ranks: 2, program: "p".into() },
        ];
        stream = answers.iter().flat_map(|answer| written(&answer.frame())).collect();
        let mut from = &stream[..];
        for answer in answers {
            assert_eq!(Answer::of(Frame::read(&mut from).unwrap().unwrap()).unwrap(), answer);
        }
    }

    /// Cut anywhere, or with any number replaced, it is an error or another message, and never more.
    #[test]
    fn nonsense_is_an_error() {
        for order in orders() {
            let bytes = written(&order.frame());
            for cut in 1..bytes.len() {
                assert!(Frame::read(&mut &bytes[..cut]).is_err(), "{order:?} cut at {cut}");
            }
            for at in 0..order.frame().numbers.len() {
                for wrong in [0, 1, 2, 1 << 31, 1 << 32, u64::MAX] {
                    let mut frame = order.frame();
                    frame.numbers[at] = wrong;
                    if let Ok(Order::Step(Pass(batch))) = Order::of(frame) {
                        assert!(batch.spans.iter().all(|span| span.rows.end <= batch.n_rows()));
                        assert!(batch.want.iter().all(|row| (*row as usize) < batch.n_rows()));
                    }
                }
            }
        }
        assert!(Frame::read(&mut &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..]).is_err());
        let huge = Frame { kind: 0, numbers: Vec::new(), bytes: Vec::new() };
        let mut huge = written(&huge);
        huge[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Frame::read(&mut &huge[..]).is_err());
        assert!(Order::of(Frame::new(7, [], &[])).is_err());
        assert!(Order::of(Frame::new(2, [2, 0], &[])).is_err(), "there is no such group");
    }
}
