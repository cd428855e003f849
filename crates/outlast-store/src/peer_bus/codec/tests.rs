//! Every message comes back as it went out; everything else is refused without a panic.

use outlast_core::Timestamp;

use super::*;
use crate::peer_bus::Signal;

/// A generator with a fixed seed; good enough to draw test cases from.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next()).unwrap() % bound
    }

    fn number(&mut self) -> u32 {
        u32::try_from(self.next() >> 32).unwrap()
    }

    fn job(&mut self) -> JobId {
        let millis = i64::try_from(self.next() >> 24).unwrap();
        JobId::new(Timestamp::from_millis(millis), u128::from(self.next()) << 10 | u128::from(self.next() & 0x3ff))
    }

    fn news(&mut self, signals: usize) -> SignalSet {
        let mut news = SignalSet::default();
        for _ in 0..signals {
            let (namespace, count) = (NamespaceId(self.number() % 5), self.number());
            let queue = format!("q{}", "x".repeat(self.below(127)));
            match self.below(12) {
                0 => news.add(Signal::KeysChanged),
                1 => news.add(Signal::OperationStarted),
                2 => news.add(Signal::NamespaceChanged(namespace)),
                3 => news.add(Signal::QueueChanged { namespace, queue: &queue }),
                4..8 => news.add(Signal::JobChanged(self.job())),
                _ => news.add(Signal::QueueHas { namespace, queue: &queue, count }),
            }
        }
        news
    }
}

#[test]
fn a_message_comes_back_as_it_went_out() {
    let mut draw = Draw(1);
    for round in 0..2000 {
        let signals = draw.below(40);
        let (node, mut news) = (draw.next(), draw.news(signals));
        news.everything = round % 50 == 0;
        news.all_jobs = round % 30 == 0;

        let bytes = encode(node, &news);

        assert!(bytes.len() <= BYTES_MAX);
        assert_eq!(decode(&bytes), Some(BusMessage { node, news }));
    }
}

#[test]
fn the_largest_news_fit_the_bound() {
    let mut news = SignalSet::default();
    for number in 0..QUEUES_MAX {
        let queue = format!("{number:0>128}");
        news.add(Signal::QueueHas { namespace: NamespaceId(u32::MAX), queue: &queue, count: u32::MAX });
        news.add(Signal::NamespaceChanged(NamespaceId(u32::try_from(number).unwrap())));
    }
    for number in 0..JOBS_MAX {
        news.add(Signal::JobChanged(JobId::new(Timestamp::MAX, u128::try_from(number).unwrap())));
    }

    let bytes = encode(u64::MAX, &news);

    assert_eq!(bytes.len(), BYTES_MAX);
    assert_eq!(decode(&bytes), Some(BusMessage { node: u64::MAX, news }));
    assert_eq!(decode(&[bytes, vec![0]].concat()), None);
}

#[test]
fn a_message_that_was_cut_or_lengthened_is_nothing() {
    let bytes = encode(9, &Draw(2).news(30));
    assert!(bytes.len() > 100);

    for length in 0..bytes.len() {
        assert_eq!(decode(&bytes[..length]), None, "{length}");
    }
    assert_eq!(decode(&[bytes, vec![0]].concat()), None);
}

#[test]
fn what_breaks_one_rule_is_nothing() {
    let empty = encode(0, &SignalSet::default());
    let mut queue = SignalSet::default();
    queue.add(Signal::QueueHas { namespace: NamespaceId(1), queue: "mail", count: 1 });
    let queue = encode(0, &queue);
    let mut job = SignalSet::default();
    job.add(Signal::JobChanged(JobId::new(Timestamp::from_millis(5), 5)));
    let job = encode(0, &job);
    let check = |bytes: &[u8], at: usize, value: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = value;
        assert_eq!(decode(&bytes), None, "{at} {value}");
    };

    check(&empty, 0, 2); // another version
    check(&empty, 9, 16); // a flag that does not exist
    check(&queue, 18, 2); // neither yes nor no
    check(&queue, 24, b'/'); // not a name
    check(&queue, 24, 0xff); // not text
    check(&queue, 13, 0xff); // more queues than there may be
    check(&job, job.len() - 7, 0x40); // a UUID of version 4
}

/// T37. Random bytes, and true messages with some bytes changed, inserted, removed or doubled.
#[test]
fn no_message_makes_the_decoder_panic_or_exceed_its_bounds() {
    let mut draw = Draw(37);
    let (mut read, mut refused) = (0, 0);
    for round in 0..200_000 {
        let bytes = match round % 2 {
            0 => (0..draw.below(200)).map(|_| u8::try_from(draw.next() >> 56).unwrap()).collect(),
            _ => mutated(&mut draw),
        };
        match decode(&bytes) {
            Some(message) => {
                read += 1;
                assert!(message.news.queue_count() <= QUEUES_MAX && message.news.jobs.len() <= JOBS_MAX);
                let names = message.news.queues.values().flat_map(|queues| queues.keys());
                assert!(names.into_iter().all(|name| is_name(name)));
                assert_eq!(decode(&encode(message.node, &message.news)).as_ref(), Some(&message));
            }
            None => refused += 1,
        }
    }

    // Both ways were gone: a changed count or id is still a message, most changes are not.
    assert!(read > 1000 && refused > 100_000, "{read} read, {refused} refused");
}

fn mutated(draw: &mut Draw) -> Vec<u8> {
    let signals = draw.below(8);
    let mut bytes = encode(draw.next(), &draw.news(signals));
    for _ in 0..=draw.below(3) {
        let at = draw.below(bytes.len());
        let value = u8::try_from(draw.next() >> 56).unwrap();
        match draw.below(4) {
            0 => bytes[at] = value,
            1 => bytes.insert(at, value),
            2 => drop(bytes.drain(at..(at + 1 + draw.below(4)).min(bytes.len()))),
            _ => bytes.extend_from_within(at..),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}
