//! Text that arrives in pieces, read from the front. It finds tags however they are cut, looks at
//! each byte a bounded number of times, and can go back to a mark. It knows no tag itself.

use std::cell::Cell;

use super::End;

/// Where tags of a set are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Found {
    /// So many bytes ahead one begins, and it is this one of the set.
    Tag { at: usize, which: usize },
    /// None begins in so many bytes; what follows them is too short to tell.
    None { safe: usize },
}

/// Whether the text goes on in a certain way.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Look {
    Yes,
    No,
    /// It is too short to tell.
    Wait,
}

/// The reading end of a growing text. Positions count bytes from the beginning of all of it.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    text: String,
    /// What has been read of `text`.
    at: usize,
    /// What may still be gone back to.
    mark: usize,
    /// The mark stays, whoever wants to move it.
    pinned: bool,
    /// Bytes that were there before `text`.
    before: usize,
    /// Where it is known that no tag begins, for each set that was looked for. It holds after going
    /// back, too: many openers in a text without an end look for one only once.
    free: Vec<Free>,
    /// A stretch of white space: what was seen of it is not looked at again when more comes.
    blank: Cell<(usize, usize)>,
    end: Option<End>,
    looked: Cell<u64>,
}

/// A stretch of the text, in its places, where no tag of a set begins.
#[derive(Debug)]
struct Free {
    /// Address and length of the set.
    set: (usize, usize),
    from: usize,
    to: usize,
}

impl Cursor {
    pub(crate) fn push(&mut self, more: &str) {
        if self.mark > 4096 && self.mark > self.text.len() / 2 {
            self.text.drain(..self.mark);
            self.before += self.mark;
            self.at -= self.mark;
            for free in &mut self.free {
                free.from = free.from.saturating_sub(self.mark);
                free.to = free.to.saturating_sub(self.mark);
            }
            let (from, to) = self.blank.get();
            self.blank.set((from.saturating_sub(self.mark), to.saturating_sub(self.mark)));
            self.mark = 0;
        }
        self.text.push_str(more);
    }

    /// Nothing more comes.
    pub(crate) fn close(&mut self, end: End) {
        self.end = Some(end);
    }

    /// How the text ended, if it has.
    pub(crate) fn end(&self) -> Option<End> {
        self.end
    }

    /// Nothing more comes.
    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// What has not been read.
    pub(crate) fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// Everything from the mark on, read or not.
    pub(crate) fn since_mark(&self) -> &str {
        &self.text[self.mark..]
    }

    pub(crate) fn mark_position(&self) -> usize {
        self.before + self.mark
    }

    pub(crate) fn position(&self) -> usize {
        self.before + self.at
    }

    /// So much was looked at so far, in bytes.
    pub(crate) fn looked(&self) -> u64 {
        self.looked.get()
    }

    /// So many bytes were looked at.
    pub(crate) fn look(&self, n: usize) {
        self.looked.set(self.looked.get() + n as u64);
    }

    /// Reads so many bytes.
    pub(crate) fn skip(&mut self, n: usize) {
        self.at += n;
    }

    /// Reads so many bytes.
    pub(crate) fn take(&mut self, n: usize) -> String {
        let taken = self.rest()[..n].to_owned();
        self.skip(n);
        taken
    }

    /// What was read until here is settled.
    pub(crate) fn mark(&mut self) {
        if !self.pinned {
            self.mark = self.at;
        }
    }

    /// Marks this place and keeps the mark until [`Cursor::unpin`].
    pub(crate) fn pin(&mut self) {
        self.mark();
        self.pinned = true;
    }

    pub(crate) fn unpin(&mut self) {
        self.pinned = false;
    }

    /// Goes back to the mark.
    pub(crate) fn rewind(&mut self) {
        self.at = self.mark;
    }

    /// Whether the rest begins with this after so many bytes.
    fn starts_at(&self, skip: usize, tag: &str) -> Look {
        let rest = &self.rest().as_bytes()[skip..];
        self.look(tag.len());
        if rest.starts_with(tag.as_bytes()) {
            Look::Yes
        } else if self.end.is_none() && tag.as_bytes().starts_with(rest) {
            Look::Wait
        } else {
            Look::No
        }
    }

    /// Which of these the rest begins with after so many bytes, or whether that cannot be told yet.
    pub(crate) fn one_of(&self, skip: usize, tags: &[&str]) -> Result<Option<usize>, Wait> {
        let mut found: Option<usize> = None;
        for (which, tag) in tags.iter().enumerate() {
            match self.starts_at(skip, tag) {
                Look::Wait => return Err(Wait),
                Look::Yes if found.is_none_or(|other| tags[other].len() < tag.len()) => {
                    found = Some(which);
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Reads one of these if the rest begins with it.
    pub(crate) fn accept(&mut self, tags: &[&str]) -> Result<bool, Wait> {
        let found = self.one_of(0, tags)?;
        self.skip(found.map_or(0, |which| tags[which].len()));
        Ok(found.is_some())
    }

    /// How many bytes of white space come next.
    pub(crate) fn blanks(&self) -> usize {
        self.blanks_after(0)
    }

    /// The same after so many bytes.
    pub(crate) fn blanks_after(&self, skip: usize) -> usize {
        let start = self.at + skip;
        let (from, to) = self.blank.get();
        let (from, to) = if (from..=to).contains(&start) { (from, to) } else { (start, start) };
        let more = self.text[to..].len() - self.text[to..].trim_start().len();
        self.look(more + 1);
        // A place without any does not make the stretch behind it forgotten.
        if to + more > start {
            self.blank.set((from, to + more));
        }
        to + more - start
    }

    /// Reads white space.
    pub(crate) fn skip_blanks(&mut self) {
        self.skip(self.blanks());
    }

    /// The first place ahead where one of the tags begins; of two at a place the longer one. As long
    /// as the text may grow, a place counts as free only if none can begin there any more.
    pub(crate) fn find(&mut self, tags: &[&str]) -> Found {
        let set = (tags.as_ptr() as usize, tags.len());
        let known = self.free.iter().position(|free| free.set == set).unwrap_or_else(|| {
            self.free.push(Free { set, from: self.at, to: self.at });
            self.free.len() - 1
        });
        if !(self.free[known].from..=self.free[known].to).contains(&self.at) {
            self.free[known] = Free { set, from: self.at, to: self.at };
        }
        let start = self.free[known].to;
        let (found, place) = self.find_from(start, tags);
        self.free[known].to = place;
        self.look(place - start + tags.len());
        found
    }

    /// The same from a place in the text on; and the place up to which none begins.
    fn find_from(&self, start: usize, tags: &[&str]) -> (Found, usize) {
        let bytes = self.text.as_bytes();
        let mut heads = [false; 256];
        for tag in tags {
            heads[tag.as_bytes().first().copied().map_or(0, usize::from)] = true;
        }
        for place in start..bytes.len() {
            if !heads[usize::from(bytes[place])] {
                continue;
            }
            let rest = &bytes[place..];
            let mut found: Option<usize> = None;
            let mut open = false;
            for (which, tag) in tags.iter().enumerate() {
                let tag = tag.as_bytes();
                if rest.starts_with(tag) {
                    let longer = |other: usize| tags[other].len() < tag.len();
                    found = if found.is_none_or(longer) { Some(which) } else { found };
                } else {
                    open |= self.end.is_none() && tag.starts_with(rest);
                }
            }
            if open || found.is_some() {
                let at = place - self.at;
                let found = match found.filter(|_| !open) {
                    Some(which) => Found::Tag { at, which },
                    None => Found::None { safe: at },
                };
                return (found, place);
            }
        }
        (Found::None { safe: bytes.len() - self.at }, bytes.len())
    }
}

/// More text is needed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wait;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_however_they_are_cut() {
        const TAGS: [&str; 3] = ["<a>", "<a>b", "\n</a>"];
        let text = "x<a>c <a>b\n</a";
        for cut in 0..=text.len() {
            let mut cursor = Cursor::default();
            let mut found = Vec::new();
            for piece in [&text[..cut], &text[cut..]] {
                cursor.push(piece);
                while let Found::Tag { at, which } = cursor.find(&TAGS) {
                    found.push((cursor.position() + at, which));
                    cursor.skip(at + TAGS[which].len());
                }
            }
            assert_eq!(found, [(1, 0), (6, 1)], "cut at {cut}");
            assert_eq!(cursor.find(&TAGS), Found::None { safe: 0 });
            cursor.close(End::Model);
            assert_eq!(cursor.find(&TAGS), Found::None { safe: 4 });
        }
    }

    #[test]
    fn a_mark_can_be_gone_back_to() {
        let mut cursor = Cursor::default();
        cursor.push("abc");
        cursor.skip(1);
        cursor.pin();
        cursor.skip(1);
        cursor.mark();
        cursor.skip(1);
        assert_eq!((cursor.since_mark(), cursor.rest()), ("bc", ""));
        cursor.rewind();
        assert_eq!((cursor.rest(), cursor.position()), ("bc", 1));
    }
}
