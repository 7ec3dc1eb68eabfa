//! The store's promises: what is found is right, whatever happened to the files; what goes wrong
//! costs blocks and nothing else.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use backend::{BLOCK, TokenId};
use proptest::prelude::*;

use super::record::{self, Format};
use super::{BlockKey, DiskError, DiskOptions, Label, Medium, Namespace, Store};

const BLOCK_BYTES: usize = 600;
const PLENTY: u64 = 1 << 30;

fn options(dir: &Path, max_bytes: u64) -> DiskOptions {
    DiskOptions { dir: dir.to_owned(), max_bytes, min_free_bytes: 0, fingerprint: [7; 32] }
}

fn open(dir: &Path) -> Store {
    open_on(Medium::default(), &options(dir, PLENTY))
}

/// A store that has found what is there.
fn open_on(medium: Medium, options: &DiskOptions) -> Store {
    let store = Store::open_on(medium, options, BLOCK_BYTES).unwrap();
    store.flush();
    store
}

fn format() -> Format {
    let namespace = Namespace::new(&[7; 32], BLOCK_BYTES);
    Format { namespace, block_bytes: BLOCK_BYTES }
}

/// The first `n` blocks of sequence `salt`.
fn chain(salt: u32, n: usize) -> Vec<Label> {
    let mut parent = format().namespace.root();
    let mut labels = Vec::new();
    for block in 0..n {
        let tokens: [TokenId; BLOCK] =
            std::array::from_fn(|i| salt * 1000 + (block * BLOCK + i) as u32);
        let key = parent.child(&tokens);
        labels.push(Label { key, parent, tokens });
        parent = key;
    }
    labels
}

/// What a model would have computed: something that follows from the key.
fn payload(label: &Label) -> Vec<u8> {
    (0..BLOCK_BYTES).map(|i| label.key.0[i % 32] ^ (i * 31) as u8).collect()
}

fn write(store: &Store, labels: &[Label]) {
    labels.iter().for_each(|label| store.put(*label, payload(label)));
    store.flush();
}

/// Reads all of them, and insists that whatever is found is right. Says how many were.
fn found(store: &mut Store, labels: &[Label]) -> usize {
    let mut n = 0;
    for label in labels {
        if let Some(bytes) = store.read(label) {
            assert_eq!(bytes, payload(label), "a wrong byte");
            n += 1;
        }
    }
    n
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let folder = dir.join(format().namespace.folder());
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn what_was_written_is_there_at_once_and_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let labels = chain(1, 20);
    let mut store = open(dir.path());
    write(&store, &labels);
    assert_eq!(found(&mut store, &labels), 20);
    drop(store);
    let mut store = open(dir.path());
    assert_eq!(found(&mut store, &labels), 20);
    assert_eq!((store.stats().blocks, store.stats().damaged), (20, 0));
    // Once is enough.
    write(&store, &labels);
    assert_eq!(store.stats().written, 0);
}

/// Without its footer, as a process that was killed leaves it.
#[test]
fn an_unfinished_segment_is_as_good() {
    let dir = tempfile::tempdir().unwrap();
    let labels = chain(1, 9);
    write(&open(dir.path()), &labels);
    let file = OpenOptions::new().write(true).open(&segments(dir.path())[0]).unwrap();
    for (torn, expected) in [(1, 9), (BLOCK_BYTES as u64 / 2, 8)] {
        file.set_len(format().offset(expected as u64) + torn).unwrap();
        let mut store = open(dir.path());
        assert_eq!((found(&mut store, &labels), store.stats().damaged), (expected, 0));
    }
}

#[test]
fn other_models_and_other_block_sizes_see_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let labels = chain(1, 5);
    write(&open(dir.path()), &labels);
    let other = DiskOptions { fingerprint: [8; 32], ..options(dir.path(), PLENTY) };
    assert_eq!(found(&mut open_on(Medium::default(), &other), &labels), 0);
    let mut store = Store::open(&options(dir.path(), PLENTY), BLOCK_BYTES / 2).unwrap();
    store.flush();
    assert_eq!(found(&mut store, &labels), 0);
    drop(store);
    assert_eq!(found(&mut open(dir.path()), &labels), 5);
}

/// The variants of a damaged or foreign entry (K04).
#[test]
fn a_damaged_or_foreign_entry_is_a_miss() {
    type Harm = fn(&mut Vec<u8>);
    let labels = chain(1, 10);
    let check = |what: &str, harm: Harm, expected: std::ops::RangeInclusive<usize>| {
        let dir = tempfile::tempdir().unwrap();
        write(&open(dir.path()), &labels);
        let path = &segments(dir.path())[0];
        let mut bytes = fs::read(path).unwrap();
        harm(&mut bytes);
        fs::write(path, bytes).unwrap();
        let mut store = open(dir.path());
        let n = found(&mut store, &labels);
        assert!(expected.contains(&n), "{what}: {n} found");
        // The missing ones are written anew and stay.
        write(&store, &labels);
        assert_eq!(found(&mut store, &labels), 10, "{what}");
        drop(store);
        assert_eq!(found(&mut open(dir.path()), &labels), 10, "{what}, reopened");
    };
    check("cut to 60 %", |bytes| bytes.truncate(bytes.len() * 6 / 10), 5..=6);
    check("one byte of a payload", |bytes| bytes[format().offset(3) as usize + 400] ^= 1, 9..=9);
    check(
        "one byte of a record's head",
        |bytes| bytes[format().offset(3) as usize + 9] ^= 1,
        9..=9,
    );
    check("one byte of the tokens", |bytes| bytes[format().offset(3) as usize + 80] ^= 1, 9..=9);
    check("the file's head", |bytes| bytes[3] ^= 1, 0..=0);
    check("its version", |bytes| bytes[8] ^= 1, 0..=0);
    check("its footer", |bytes| *bytes.last_mut().unwrap() ^= 1, 10..=10);
    check("emptied", Vec::clear, 0..=0);
    check("longer than it was", |bytes| bytes.extend([0; 3000]), 10..=10);
}

/// A record whose every checksum is right and whose tokens are another save's: nothing but a
/// comparison of tokens can tell.
#[test]
fn equal_names_with_other_tokens_do_not_match() {
    let dir = tempfile::tempdir().unwrap();
    let label = chain(1, 1)[0];
    let mut forged = label;
    forged.tokens[5] += 1;
    write(&open(dir.path()), &[forged]);
    let mut store = open(dir.path());
    assert!(store.contains(&label.key));
    assert_eq!(store.read(&label), None);
    assert_eq!(store.stats().damaged, 1);
    forged.tokens = label.tokens;
    forged.parent = BlockKey([0; 32]);
    write(&store, &[forged]);
    assert_eq!(store.read(&label), None);
}

/// A segment of another namespace that somebody put into this one's folder is kept and counted;
/// files that are no segments are not touched.
#[test]
fn foreign_files_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let labels = chain(1, 3);
    write(&open(dir.path()), &labels);
    let folder = segments(dir.path())[0].parent().unwrap().to_owned();
    let foreign = Format { namespace: Namespace::new(&[9; 32], 60), block_bytes: 60 };
    fs::write(folder.join("0.kv"), foreign.head()).unwrap();
    fs::write(folder.join("left.partial"), b"half").unwrap();
    let mut store = open(dir.path());
    assert_eq!((found(&mut store, &labels), store.stats().foreign), (3, 1));
    store.clear();
    assert!(folder.join("left.partial").exists());
}

#[test]
fn a_budget_holds_and_what_was_used_least_recently_goes_first() {
    let dir = tempfile::tempdir().unwrap();
    // Segments of two blocks, ten of them.
    let max_bytes = 10 * format().sealed_len(2);
    let budget = options(dir.path(), max_bytes);
    let medium = || Medium::default();
    let segment_bytes = (max_bytes / super::LEAST_SEGMENTS).max(format().sealed_len(1));
    let per_segment = (1..).take_while(|n| format().sealed_len(*n) <= segment_bytes).count();
    let all: Vec<Vec<Label>> = (0..30).map(|salt| chain(salt, per_segment)).collect();
    let mut store = open_on(medium(), &budget);
    for (at, labels) in all.iter().enumerate() {
        write(&store, labels);
        if at > 0 {
            // Dates are set by hand: files of one test are made within one tick of some clocks.
            let path = segments(dir.path()).pop().unwrap();
            date(&path, 1000 + at as u64);
        }
        let total: u64 = segments(dir.path()).iter().map(|p| fs::metadata(p).unwrap().len()).sum();
        assert!(total <= max_bytes, "{total} of {max_bytes} bytes");
    }
    assert!(store.stats().evicted > 15);
    let kept = |store: &mut Store| -> Vec<usize> {
        (0..30).filter(|at| found(store, &all[*at]) > 0).collect()
    };
    let last = kept(&mut store);
    assert_eq!(last, (30 - last.len()..30).collect::<Vec<_>>(), "the newest are kept");
    assert!(last.len() >= 6);
    drop(store);
    // The oldest is used again, which puts it behind the others.
    for (at, path) in segments(dir.path()).iter().enumerate() {
        date(path, 2000 + at as u64);
    }
    let mut store = open_on(medium(), &budget);
    assert!(found(&mut store, &all[last[0]]) > 0);
    for salt in 100..103 {
        write(&store, &chain(salt, per_segment));
    }
    assert!(found(&mut store, &all[last[0]]) > 0, "what was just read stays");
    assert_eq!(found(&mut store, &all[last[1]]), 0);
}

fn date(path: &Path, seconds: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

#[test]
fn a_budget_below_one_block_and_a_folder_that_cannot_be_made_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let needed = format().sealed_len(1);
    let open = |max_bytes| Store::open(&options(dir.path(), max_bytes), BLOCK_BYTES);
    assert!(matches!(open(needed - 1), Err(DiskError::TooSmall { needed: n, .. }) if n == needed));
    let mut store = open(needed).unwrap();
    for labels in chain(1, 3).chunks(1) {
        write(&store, labels);
        assert_eq!(found(&mut store, labels), 1);
    }
    assert_eq!(store.stats().blocks, 1);
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let blocked = Store::open(&options(&file, PLENTY), BLOCK_BYTES);
    assert!(matches!(blocked, Err(DiskError::Io { .. })));
    assert!(matches!(Store::open(&options(dir.path(), PLENTY), 0), Err(DiskError::NoBlocks)));
}

/// A disk with room for so many more bytes.
fn small_disk(room: &Arc<AtomicU64>) -> Medium {
    let room = Arc::clone(room);
    let append = move |file: &mut File, bytes: &[u8]| {
        let left = room.load(Ordering::SeqCst);
        let n = bytes.len().min(left as usize);
        room.store(left - n as u64, Ordering::SeqCst);
        file.write_all(&bytes[..n])?;
        match n == bytes.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    };
    Medium { append: Box::new(append), pause: Duration::ZERO, ..Medium::default() }
}

#[test]
fn a_full_disk_costs_blocks_and_nothing_else() {
    let labels = chain(1, 12);
    // Full in the middle of anything: a head, a payload, a segment's own head.
    for room in [0, 5, 100, 300, 700, 1000, 2500, 5000] {
        let dir = tempfile::tempdir().unwrap();
        let left = Arc::new(AtomicU64::new(room));
        let budget = options(dir.path(), PLENTY);
        let mut store = open_on(small_disk(&left), &budget);
        write(&store, &labels);
        let whole = found(&mut store, &labels);
        assert_eq!(whole as u64, store.stats().written);
        assert!(whole < 12 && store.stats().write_errors > 0, "{room}");
        assert_eq!(store.stats().written + store.stats().dropped, 12);
        // There is room again.
        left.store(PLENTY, Ordering::SeqCst);
        write(&store, &labels);
        assert_eq!(found(&mut store, &labels), 12, "{room}");
        drop(store);
        assert_eq!(found(&mut open(dir.path()), &labels), 12, "{room}");
    }
}

#[test]
fn space_that_is_to_stay_free_stays_free() {
    let dir = tempfile::tempdir().unwrap();
    let labels = chain(1, 4);
    write(&open(dir.path()), &labels);
    let free = Arc::new(AtomicU64::new(100));
    let probe = Arc::clone(&free);
    let medium = Medium {
        free_bytes: Box::new(move |_| Some(probe.load(Ordering::SeqCst))),
        pause: Duration::ZERO,
        ..Medium::default()
    };
    let floor = DiskOptions { min_free_bytes: 1 << 20, ..options(dir.path(), PLENTY) };
    let mut store = open_on(medium, &floor);
    assert_eq!(found(&mut store, &labels), 4);
    write(&store, &chain(2, 1));
    let stats = store.stats();
    assert_eq!((stats.written, stats.dropped, stats.evicted), (0, 1, 1));
    free.store(u64::MAX, Ordering::SeqCst);
    write(&store, &chain(2, 1));
    assert_eq!(found(&mut store, &chain(2, 1)), 1);
}

#[test]
fn two_processes_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (mine, yours) = (chain(1, 6), chain(2, 6));
    let (mut a, mut b) = (open(dir.path()), open(dir.path()));
    write(&a, &mine);
    write(&b, &yours);
    assert_eq!(segments(dir.path()).len(), 2);
    // One clears. What the other is writing stays, and what it had is only missing.
    let cleared = a.clear();
    assert_eq!((cleared.blocks, cleared.segments, cleared.segments_in_use), (6, 1, 1));
    assert_eq!(found(&mut a, &mine), 0);
    assert_eq!(found(&mut b, &yours), 6);
    write(&a, &mine);
    drop(b);
    // The next process has both.
    let mut c = open(dir.path());
    assert_eq!((found(&mut c, &mine), found(&mut c, &yours)), (6, 6));
    drop((a, c));
    // Somebody removes everything under the feet of a reader.
    let mut reader = open(dir.path());
    assert_eq!(found(&mut reader, &mine[..1]), 1);
    segments(dir.path()).iter().for_each(|path| fs::remove_file(path).unwrap());
    found(&mut reader, &mine);
    assert_eq!(found(&mut reader, &yours), 0);
    assert_eq!(reader.stats().damaged, 0);
    write(&reader, &yours);
    assert_eq!(found(&mut reader, &yours), 6);
}

#[test]
fn a_writer_that_cannot_follow_gives_blocks_back() {
    let dir = tempfile::tempdir().unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let medium = Medium {
        append: Box::new(move |file, bytes| {
            // Released when the test is done with it.
            let _ = wait.recv();
            file.write_all(bytes)
        }),
        ..Medium::default()
    };
    // Blocks so large that few of them fill the queue.
    let block_bytes = 32 << 20;
    let big = DiskOptions { max_bytes: 1 << 40, ..options(dir.path(), PLENTY) };
    let store = Store::open_on(medium, &big, block_bytes).unwrap();
    let refused = chain(1, 20).iter().filter(|l| store.offer(**l, payload(l)).is_err()).count();
    assert!((20 - 6..=20 - 4).contains(&refused), "{refused} refused");
    drop(go);
    store.flush();
}

/// A directory that takes long to look through keeps nobody: until it is done a block is not there,
/// and afterwards all are, those that came meanwhile included, none of them twice.
#[test]
fn a_directory_is_looked_through_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let labels = chain(1, 6);
    write(&open(dir.path()), &labels);
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let slow = Medium {
        scan: Box::new(move |path, format| {
            // Released when the test is done with it.
            let _ = wait.recv();
            super::segment::scan(path, format)
        }),
        ..Medium::default()
    };
    let mut store = Store::open_on(slow, &options(dir.path(), PLENTY), BLOCK_BYTES).unwrap();
    assert_eq!((found(&mut store, &labels), store.stats().blocks), (0, 0));
    let watch = store.watch();
    // Whoever computed some of it meanwhile hands it over again.
    let (known, new) = (&labels[..2], chain(2, 3));
    known.iter().chain(&new).for_each(|l| store.offer(*l, payload(l)).unwrap());
    drop(go);
    // Whoever watches need not ask the store, which may sleep.
    while watch.stats().blocks < 9 {
        std::thread::yield_now();
    }
    store.flush();
    assert_eq!((found(&mut store, &labels), found(&mut store, &new)), (6, 3));
    assert_eq!((store.stats().written, store.stats().dropped, store.stats().blocks), (3, 0, 9));
}

#[cfg(unix)]
#[test]
fn nobody_else_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("cache/kv");
    write(&open(&root), &chain(1, 1));
    let file = &segments(&root)[0];
    assert_eq!((mode(&root), mode(file.parent().unwrap()), mode(file)), (0o700, 0o700, 0o600));
}

/// One thing that may happen to a file.
#[derive(Clone, Debug)]
enum Harm {
    Flip(usize, u8),
    Truncate(usize),
    Zero(usize, usize),
    Insert(usize, Vec<u8>),
    Swap(usize, usize),
    Double,
}

fn harms() -> impl Strategy<Value = Harm> {
    let at = 0..1_000_000usize;
    prop_oneof![
        (at.clone(), 1..=255u8).prop_map(|(at, bits)| Harm::Flip(at, bits)),
        at.clone().prop_map(Harm::Truncate),
        (at.clone(), 1..3000usize).prop_map(|(at, n)| Harm::Zero(at, n)),
        (at.clone(), prop::collection::vec(any::<u8>(), 1..900))
            .prop_map(|(at, b)| Harm::Insert(at, b)),
        (0..12usize, 0..12usize).prop_map(|(a, b)| Harm::Swap(a, b)),
        Just(Harm::Double),
    ]
}

fn harm(bytes: &mut Vec<u8>, harm: Harm) {
    let len = bytes.len();
    match harm {
        _ if len == 0 => {}
        Harm::Flip(at, bits) => bytes[at % len] ^= bits,
        Harm::Truncate(at) => bytes.truncate(at % len),
        Harm::Zero(at, n) => {
            let at = at % len;
            bytes[at..len.min(at + n)].fill(0);
        }
        Harm::Insert(at, more) => {
            let at = at % len;
            bytes.splice(at..at, more);
        }
        Harm::Swap(a, b) => {
            let record = |n: usize| {
                let start = format().offset(n as u64) as usize;
                start..start + format().record_len() as usize
            };
            if let (Some(first), Some(second)) = (bytes.get(record(a)), bytes.get(record(b))) {
                let (first, second) = (first.to_vec(), second.to_vec());
                bytes[record(a)].copy_from_slice(&second);
                bytes[record(b)].copy_from_slice(&first);
            }
        }
        Harm::Double => bytes.extend_from_within(..),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is done to the files: opening works, nothing that is found is wrong, and what is
    /// missing can be written again.
    #[test]
    fn no_damage_gives_a_wrong_byte(
        sealed in any::<bool>(), damage in prop::collection::vec(harms(), 1..4),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let labels = chain(1, 12);
        write(&open(dir.path()), &labels);
        let path = segments(dir.path()).remove(0);
        let mut bytes = fs::read(&path).unwrap();
        if !sealed {
            bytes.truncate(format().offset(12) as usize);
        }
        damage.into_iter().for_each(|one| harm(&mut bytes, one));
        fs::write(&path, bytes).unwrap();
        let mut store = open(dir.path());
        found(&mut store, &labels);
        write(&store, &labels);
        prop_assert_eq!(found(&mut store, &labels), 12);
    }

    /// Footers of any bytes are refused or harmless, and never asked for more than the file has.
    #[test]
    fn any_tail_is_read(tail in prop::collection::vec(any::<u8>(), 0..200), n in any::<u64>()) {
        let dir = tempfile::tempdir().unwrap();
        let labels = chain(1, 2);
        write(&open(dir.path()), &labels);
        let path = segments(dir.path()).remove(0);
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(format().offset(2) as usize);
        bytes.extend(tail);
        let mut end = record::footer(&[]);
        end[8..16].copy_from_slice(&n.to_le_bytes());
        bytes.extend(end);
        fs::write(&path, bytes).unwrap();
        prop_assert_eq!(found(&mut open(dir.path()), &labels), 2);
    }
}
