//! The first rank: an executor like any other to the engine, whose passes all ranks take part in.
//!
//! Its own part is computed on a thread that may be left behind: where another rank is gone, MLX waits
//! for ever.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};
use backend::{Batch, BlockId, DeviceError, KvGroup, SlotId};
use engine::{Executor, ExecutorShape};

use super::wire::{Answer, Frame, Order, Pass};
use super::{Settings, Shared, fingerprint, load_piece, obey, watched};
use crate::load::Opened;

/// The group, as its first rank has it.
pub(crate) struct Lead {
    device: engine::Device<mlx::Mlx>,
    shared: Shared,
    others: Arc<Mutex<Others>>,
}

/// The other ranks.
struct Others {
    /// In the order of ranks, without the first.
    streams: Vec<TcpStream>,
    /// What all ranks have said, this one too.
    said: Receiver<Said>,
    /// What this rank's own thread says it with.
    say: Sender<Said>,
    /// Why nothing can be done any more.
    ended: Option<String>,
}

/// What a rank has said.
enum Said {
    /// An answer of another one.
    Answer(usize, Answer),
    /// What this one's own part came to: bytes, and logits.
    Own(Result<(Vec<u8>, Vec<f32>), DeviceError>),
    /// Nothing more will come.
    Gone(usize, String),
}

impl Lead {
    /// Waits at `address` for all other ranks, which are to run the same `program`.
    pub(super) fn gather(
        address: SocketAddr,
        (device, shared): (mlx::Mlx, Shared),
        program: &str,
    ) -> Result<Lead> {
        let listener = TcpListener::bind(address)
            .with_context(|| format!("--ranks: cannot wait for others at {address}"))?;
        let ranks = shared.ranks;
        let mut streams: Vec<Option<TcpStream>> = (1..ranks).map(|_| None).collect();
        while streams.iter().any(Option::is_none) {
            let (mut stream, from) = listener.accept()?;
            watched(&stream)?;
            let frame = Frame::read(&mut stream).ok().flatten();
            let Some(Answer::Here { rank, ranks: of, program: theirs }) =
                frame.and_then(|frame| Answer::of(frame).ok())
            else {
                eprintln!("note: {from} is no rank of this group");
                continue;
            };
            let place = usize::try_from(rank).ok().and_then(|rank| rank.checked_sub(1));
            match place.and_then(|place| streams.get_mut(place)) {
                Some(place) if of == ranks as u64 && place.is_none() => {
                    if theirs != program {
                        bail!("rank {rank} runs another program: {theirs}, and this is {program}");
                    }
                    *place = Some(stream);
                }
                _ => eprintln!("note: {from} says it is rank {rank} of {of}; not so here"),
            }
        }
        let streams: Vec<TcpStream> = streams.into_iter().flatten().collect();
        let (say, said) = channel();
        for (rank, stream) in (1..).zip(&streams) {
            let (stream, say) = (stream.try_clone()?, say.clone());
            thread::spawn(move || listen(rank, stream, &say));
        }
        let others = Others { streams, said, say, ended: None };
        Ok(Lead { device: device.into(), shared, others: Arc::new(Mutex::new(others)) })
    }

    pub(crate) fn shared(&self) -> Shared {
        self.shared
    }

    pub(crate) fn mlx(&self) -> &mlx::Mlx {
        self.device.backend()
    }

    /// Has all ranks load their parts.
    pub(crate) fn executor(
        &self,
        opened: &Opened,
        shape: ExecutorShape,
    ) -> Result<Box<dyn Executor>> {
        let spec = &opened.spec;
        let settings = Settings {
            split: self.shared.split,
            context: opened.plan.context,
            kv_format: spec.kv_format.name().to_owned(),
            config: fingerprint(&opened.checkpoint),
            n_blocks: shape.n_blocks,
            n_windowed: shape.n_windowed,
            n_slots: shape.n_slots,
            max_rows: shape.max_rows,
            max_want: shape.max_want,
        };
        let order = Order::Load(serde_json::to_vec(&settings)?);
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.tell(|_| order.clone())?;
        let piece = self.shared.piece(spec, 0)?;
        let own = load_piece(&self.device, (spec, piece), &opened.checkpoint, shape)?;
        let mut bytes = vec![[
            own.block_bytes(KvGroup::Full),
            own.block_bytes(KvGroup::Windowed),
            own.state_bytes(),
        ]];
        for (rank, answer) in (1..).zip(others.answers(false)?.1) {
            let Answer::Loaded(theirs) = answer else {
                return Err(others.end(format!("rank {rank} did not load the model")).into());
            };
            bytes.push(theirs.map(|n| usize::try_from(n).unwrap_or(usize::MAX)));
        }
        let (vocab, window) = (spec.vocab, spec.window());
        let (jobs, orders) = channel();
        let say = others.say.clone();
        let own = Some(thread::spawn(move || work(own, &orders, &say)));
        let jobs = Some(jobs);
        drop(others);
        let others = Arc::clone(&self.others);
        let max_positions = spec.max_positions;
        Ok(Box::new(Ranked { others, jobs, own, bytes, vocab, max_positions, window, shape }))
    }
}

/// Passes on what a rank says.
fn listen(rank: usize, mut stream: TcpStream, say: &Sender<Said>) {
    loop {
        let said = match Frame::read(&mut stream) {
            Ok(Some(frame)) => Answer::of(frame).map(|answer| Said::Answer(rank, answer)),
            Ok(None) => Ok(Said::Gone(rank, "it has ended".to_owned())),
            Err(garbled) => Err(garbled),
        };
        let said = said.unwrap_or_else(|garbled| Said::Gone(rank, garbled.to_string()));
        let is_last = matches!(said, Said::Gone(..));
        if say.send(said).is_err() || is_last {
            return;
        }
    }
}

/// Computes this rank's own part.
fn work(mut own: Box<dyn Executor>, orders: &Receiver<Order>, say: &Sender<Said>) {
    while let Ok(order) = orders.recv() {
        let mut logits = Vec::new();
        let result = obey(&mut *own, &order, &mut logits).map(|bytes| (bytes, logits));
        if say.send(Said::Own(result)).is_err() {
            return;
        }
    }
}

impl Others {
    /// Ends the group: whoever waits hears that nothing more will come.
    fn end(&mut self, why: String) -> DeviceError {
        for stream in &self.streams {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let why = format!("{why}; start all ranks again");
        DeviceError(self.ended.get_or_insert(why).clone())
    }

    /// Gives every other rank its order.
    fn tell(&mut self, order: impl Fn(usize) -> Order) -> Result<(), DeviceError> {
        if let Some(why) = &self.ended {
            return Err(DeviceError(why.clone()));
        }
        let told = (1..).zip(&mut self.streams).try_for_each(|(rank, stream)| {
            order(rank)
                .frame()
                .write(stream)
                .map_err(|error| format!("rank {rank} is gone: {error}"))
        });
        told.map_err(|why| self.end(why))
    }

    /// One answer of each of them, and this rank's own result where that is asked for.
    #[expect(clippy::type_complexity, reason = "two lists that are taken apart at once")]
    fn answers(
        &mut self,
        with_own: bool,
    ) -> Result<((Vec<u8>, Vec<f32>), Vec<Answer>), DeviceError> {
        let mut answers: Vec<Option<Answer>> = self.streams.iter().map(|_| None).collect();
        let mut own = if with_own { None } else { Some(Default::default()) };
        while own.is_none() || answers.iter().any(Option::is_none) {
            let why = match self.said.recv() {
                Ok(Said::Own(Ok(result))) => {
                    own = Some(result);
                    continue;
                }
                Ok(Said::Answer(rank, Answer::Failed(why))) => format!("rank {rank} failed: {why}"),
                Ok(Said::Answer(rank, answer)) => match &mut answers[rank - 1] {
                    place @ None => {
                        *place = Some(answer);
                        continue;
                    }
                    Some(_) => format!("rank {rank} answers what nobody asked"),
                },
                Ok(Said::Own(Err(DeviceError(why)))) => format!("rank 0 failed: {why}"),
                Ok(Said::Gone(rank, why)) => format!("rank {rank} is gone: {why}"),
                Err(_) => "nobody is there any more".to_owned(),
            };
            return Err(self.end(why));
        }
        Ok((own.unwrap_or_default(), answers.into_iter().flatten().collect()))
    }
}

/// A model on all ranks.
struct Ranked {
    others: Arc<Mutex<Others>>,
    /// Orders for this rank's own part, until this is dropped.
    jobs: Option<Sender<Order>>,
    /// What computes that part.
    own: Option<thread::JoinHandle<()>>,
    /// Bytes of a block of both groups and of a state, rank by rank.
    bytes: Vec<[usize; 3]>,
    vocab: usize,
    max_positions: usize,
    window: Option<usize>,
    shape: ExecutorShape,
}

/// What is copied of a model's memory.
#[derive(Clone, Copy)]
enum Kept {
    Block(KvGroup, BlockId),
    State(SlotId),
}

impl Kept {
    /// Where its size is in [`Ranked::bytes`].
    fn column(self) -> usize {
        match self {
            Kept::Block(KvGroup::Full, _) => 0,
            Kept::Block(KvGroup::Windowed, _) => 1,
            Kept::State(_) => 2,
        }
    }
}

impl Ranked {
    /// Has every rank do something. What each of them gives, and logits.
    fn order(
        &mut self,
        order: impl Fn(usize) -> Order,
    ) -> Result<(Vec<Vec<u8>>, Vec<f32>), DeviceError> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.tell(&order)?;
        if self.jobs.as_ref().is_none_or(|jobs| jobs.send(order(0)).is_err()) {
            return Err(others.end("rank 0 failed: its thread has ended".to_owned()));
        }
        let ((own, logits), answers) = others.answers(true)?;
        let mut pieces = vec![own];
        for (rank, answer) in (1..).zip(answers) {
            match answer {
                Answer::Done(bytes) => pieces.push(bytes),
                _ => return Err(others.end(format!("rank {rank} answers something else"))),
            }
        }
        Ok((pieces, logits))
    }

    fn size(&self, column: usize) -> usize {
        self.bytes.iter().map(|bytes| bytes[column]).sum()
    }

    fn read(&mut self, kept: Kept, out: &mut [u8]) -> Result<(), DeviceError> {
        let (pieces, _) = self.order(|_| match kept {
            Kept::Block(group, block) => Order::ReadBlock(group, block),
            Kept::State(slot) => Order::ReadState(slot),
        })?;
        let whole = pieces.concat();
        if whole.len() != out.len() {
            return Err(DeviceError(
                "ranks hold another number of bytes than they said".to_owned(),
            ));
        }
        out.copy_from_slice(&whole);
        Ok(())
    }

    fn write(&mut self, kept: Kept, bytes: &[u8]) -> Result<(), DeviceError> {
        let column = kept.column();
        let (mut rest, mut pieces) = (bytes, Vec::new());
        for sizes in &self.bytes {
            let (own, others) = rest.split_at(sizes[column]);
            pieces.push(own.to_vec());
            rest = others;
        }
        self.order(|rank| match kept {
            Kept::Block(group, block) => Order::WriteBlock(group, block, pieces[rank].clone()),
            Kept::State(slot) => Order::WriteState(slot, pieces[rank].clone()),
        })?;
        Ok(())
    }
}

impl Drop for Ranked {
    fn drop(&mut self) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        self.jobs = None;
        // Where somebody is gone, nobody has to forget anything, and this rank may wait for ever.
        if others.tell(|_| Order::Unload).is_ok()
            && let Some(own) = self.own.take()
        {
            // A panic there was told when it happened.
            let _ = own.join();
        }
    }
}

impl Executor for Ranked {
    fn vocab(&self) -> usize {
        self.vocab
    }

    fn max_positions(&self) -> usize {
        self.max_positions
    }

    fn shape(&self) -> ExecutorShape {
        self.shape
    }

    fn step(&mut self, batch: &Batch, logits: &mut Vec<f32>) -> Result<(), DeviceError> {
        let order = Order::Step(Pass(batch.clone()));
        *logits = self.order(|_| order.clone())?.1;
        Ok(())
    }

    fn window(&self) -> Option<usize> {
        self.window
    }

    fn state_bytes(&self) -> usize {
        self.size(2)
    }

    fn read_state(&mut self, slot: SlotId, out: &mut [u8]) -> Result<(), DeviceError> {
        self.read(Kept::State(slot), out)
    }

    fn write_state(&mut self, slot: SlotId, bytes: &[u8]) -> Result<(), DeviceError> {
        self.write(Kept::State(slot), bytes)
    }

    fn block_bytes(&self, group: KvGroup) -> usize {
        self.size(Kept::Block(group, 0).column())
    }

    fn read_block(
        &mut self,
        (group, block): (KvGroup, BlockId),
        out: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.read(Kept::Block(group, block), out)
    }

    fn write_block(
        &mut self,
        (group, block): (KvGroup, BlockId),
        bytes: &[u8],
    ) -> Result<(), DeviceError> {
        self.write(Kept::Block(group, block), bytes)
    }
}
