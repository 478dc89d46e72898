//! What a node says of itself on its topic, and reading what others say: nothing of that is trusted.

use serde::{Deserialize, Serialize};
use tidegate_plugin::Crowd;

use crate::broker::topic;
use crate::proxy::queue::{Counts, Heard, MOST_THERE};
use crate::wire::QoS;

/// Bytes of a message that is read, and of the queues that one may tell of: the rest of it is short.
pub(super) const MOST_BYTES: usize = 512 * 1024;
pub(super) const MOST_TOLD: usize = 400 * 1024;
/// Queues that one message may tell of.
pub(super) const MOST_QUEUES: usize = 500;
/// Filters of one queue that a message may tell of.
pub(super) const MOST_FILTERS: usize = 16;
/// Crowds of publishers of one queue.
const MOST_CROWDS: usize = 128;
/// Bytes of a filter or of a name.
const MOST_NAME: usize = 512;
/// Consumers, publishers and messages in flight beyond which a number is not believed.
const MOST_COUNT: u64 = 10_000_000;
/// Messages that nobody counts up to.
const MOST_MESSAGES: u64 = 1 << 48;

/// A node's message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) v: u8,
    /// The node; the topic says so too.
    pub(super) node: String,
    /// Another one after each start of the node.
    pub(super) run: u64,
    pub(super) seq: u64,
    pub(super) at_ms: u64,
    /// How long its messages take to come back to it.
    #[serde(default)]
    pub(super) round_ms: u64,
    pub(super) interval_ms: u64,
    pub(super) ttl_ms: u64,
    /// Clients that are connected to it.
    pub(super) clients: u64,
    pub(super) queues: Vec<Told>,
}

/// What a node says of one queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Told {
    /// The shared group, or else the client whose session it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client: Option<String>,
    /// Filters, without `$share/group/`; a group has one.
    pub(super) filters: Vec<String>,
    /// The highest QoS of those who subscribe at the node; none of a group that only its publishers feed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) qos: Option<u8>,
    /// Messages of its publishers so far, and messages that its consumers are done with so far.
    pub(super) arrived: u64,
    pub(super) done: u64,
    /// Messages that it found to be lost so far.
    #[serde(default)]
    pub(super) lost: u64,
    /// Messages that consumers got and that no node had counted so far.
    #[serde(default)]
    pub(super) strangers: u64,
    /// The same of those that other nodes may still tell of.
    #[serde(default)]
    pub(super) fresh: u64,
    /// Since when it knows the queue, in milliseconds since 1970.
    pub(super) since_ms: u64,
    /// Messages that are there beside what nodes count, and a mark of the nodes that this one counts.
    pub(super) base: i64,
    pub(super) among: u32,
    pub(super) in_flight: u64,
    pub(super) waiting: u64,
    pub(super) consumers: u32,
    /// Messages that they all can be at work on.
    #[serde(default)]
    pub(super) window: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) soonest_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) never_hold: bool,
    /// Its publishers: class, how many, what each of them wants in messages a second.
    #[serde(default)]
    pub(super) publishers: Vec<(String, u32, f64)>,
}

/// Whose queue it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::proxy) enum Owner {
    /// A shared group on a filter, as `$share/group/filter`.
    Group(String),
    /// The session of a client.
    Client(String),
}

/// Reads a message, without queues that cannot be as it says; how many these were. None when it is not a message.
pub(super) fn read(payload: &[u8]) -> Option<(Message, usize)> {
    if payload.len() > MOST_BYTES {
        return None;
    }
    let mut message: Message = serde_json::from_slice(payload).ok()?;
    let sound = message.v == 1
        && message.queues.len() <= MOST_QUEUES
        && (10..=60_000).contains(&message.interval_ms)
        && (message.interval_ms..=600_000).contains(&message.ttl_ms);
    // one that is wrong, or that a later version tells of in another way, says nothing about the others
    let all = message.queues.len();
    message.queues.retain(Told::is_sound);
    let wrong = all - message.queues.len();
    sound.then_some((message, wrong))
}

/// Whether a node that reads this filter of a session or a group takes it in.
pub(super) fn is_told_filter(filter: &str) -> bool {
    (1..=MOST_NAME).contains(&filter.len())
        && !filter.starts_with('$')
        && matches!(topic::parse_subscription(filter), Some((None, _)))
}

impl Told {
    pub(super) fn new(
        owner: &Owner,
        filters: Vec<String>,
        qos: Option<QoS>,
        since_ms: u64,
        own: Heard,
    ) -> Self {
        let (group, client) = match owner {
            Owner::Group(path) => (topic::parse_subscription(path).and_then(|(group, _)| group), None),
            Owner::Client(client) => (None, Some(client.clone())),
        };
        let crowd = |crowd: Crowd| (String::from(&*crowd.class), crowd.publishers, round(crowd.wants));
        Self {
            group: group.map(str::to_owned),
            client,
            filters,
            qos: qos.map(|qos| qos as u8),
            arrived: own.counts.arrived,
            done: own.counts.done,
            lost: own.counts.lost,
            strangers: own.counts.strangers,
            fresh: own.fresh,
            since_ms,
            base: own.base,
            among: own.among,
            in_flight: own.in_flight,
            waiting: own.waiting,
            consumers: own.consumers,
            window: own.window,
            soonest_ms: own.soonest,
            never_hold: own.never,
            publishers: own.crowds.into_iter().map(crowd).collect(),
        }
    }

    /// Bytes that it takes in a message.
    pub(super) fn bytes(&self) -> usize {
        let mut count = Bytes(0);
        // counting does not fail, and strings and finite numbers can always be written
        let _ = serde_json::to_writer(&mut count, self);
        count.0 + 1
    }

    /// Whose queue it is; none when that cannot be.
    pub(super) fn owner(&self) -> Option<Owner> {
        match (&self.group, &self.client, &*self.filters) {
            (Some(group), None, [filter]) => {
                let path = format!("$share/{group}/{filter}");
                let (named, plain) = topic::parse_subscription(&path)?;
                (named == Some(group) && plain == filter).then_some(())?;
                Some(Owner::Group(path))
            }
            (None, Some(client), _) if !client.is_empty() => Some(Owner::Client(client.clone())),
            _ => None,
        }
    }

    pub(super) fn highest_qos(&self) -> Option<QoS> {
        self.qos.map(|qos| QoS::from_bits(qos).unwrap_or(QoS::ExactlyOnce))
    }

    /// What it says in numbers.
    pub(super) fn heard(&self) -> Heard {
        let crowd = |(class, publishers, wants): &(String, u32, f64)| Crowd {
            class: class.as_str().into(),
            publishers: *publishers,
            wants: *wants,
        };
        Heard {
            counts: Counts {
                arrived: self.arrived,
                done: self.done,
                lost: self.lost,
                strangers: self.strangers,
            },
            fresh: self.fresh,
            base: self.base,
            among: self.among,
            in_flight: self.in_flight,
            consumers: self.consumers,
            window: self.window,
            waiting: self.waiting,
            soonest: self.soonest_ms,
            never: self.never_hold,
            crowds: self.publishers.iter().map(crowd).collect(),
        }
    }

    /// Whether others take it in.
    pub(super) fn is_sound(&self) -> bool {
        let name = |name: &String| (1..=MOST_NAME).contains(&name.len());
        let crowd = |(class, count, wants): &(String, u32, f64)| {
            name(class) && u64::from(*count) <= MOST_COUNT && *wants >= 0.0 && *wants <= 1e12
        };
        (1..=MOST_FILTERS).contains(&self.filters.len())
            && self.filters.iter().all(|filter| is_told_filter(filter))
            && self.client.as_ref().is_none_or(name)
            && self.owner().is_some()
            && [self.arrived, self.done, self.lost, self.strangers]
                .iter()
                .all(|count| *count <= MOST_MESSAGES)
            && [self.base, self.heard().counts.there()]
                .iter()
                .all(|there| (-MOST_THERE..=MOST_THERE).contains(there))
            && self.in_flight <= MOST_COUNT
            && self.fresh <= MOST_MESSAGES
            && self.window <= MOST_COUNT * MOST_COUNT
            && u64::from(self.consumers) <= MOST_COUNT
            && self.publishers.len() <= MOST_CROWDS
            && self.publishers.iter().all(crowd)
    }
}

/// Counts bytes.
struct Bytes(usize);

impl std::io::Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A rate in few digits.
fn round(rate: f64) -> f64 {
    (rate * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn sample() -> Value {
        json!({"v": 1, "node": "a", "run": 7, "seq": 1, "at_ms": 5, "interval_ms": 200, "ttl_ms": 2000, "clients": 3,
            "queues": [{"group": "w", "filters": ["s/#"], "qos": 1, "arrived": 9, "done": 5, "since_ms": 3, "base": -4, "among": 5,
            "in_flight": 2, "waiting": 2, "consumers": 1, "publishers": [["default", 4, 2.5]], "new": "ignored"}]})
    }

    /// A message in which nothing was wrong.
    fn parse(value: &Value) -> Option<Message> {
        read(value.to_string().as_bytes()).filter(|(_, wrong)| *wrong == 0).map(|(message, _)| message)
    }

    #[test]
    fn what_is_said_is_read_again() {
        let message = parse(&sample()).unwrap();
        let told = &message.queues[0];
        assert_eq!(told.owner(), Some(Owner::Group("$share/w/s/#".into())));
        let again =
            Told::new(&told.owner().unwrap(), told.filters.clone(), told.highest_qos(), 3, told.heard());
        assert_eq!(*told, again);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let wrong: [(&str, Value); 16] = [
            ("/v", json!(2)),
            ("/interval_ms", json!(0)),
            ("/ttl_ms", json!(100)),
            ("/queues/0/filters", json!([])),
            ("/queues/0/filters", json!(["s/#/x"])),
            ("/queues/0/filters", json!(["$SYS/#"])),
            ("/queues/0/filters", json!(["a", "b"])),
            ("/queues/0/group", json!("w/x")),
            ("/queues/0/group", Value::Null),
            ("/queues/0/arrived", json!(-1)),
            ("/queues/0/done", json!(1_u64 << 60)),
            ("/queues/0/base", json!(i64::MIN)),
            ("/queues/0/in_flight", json!(1e19)),
            ("/queues/0/consumers", json!(4_000_000_000_u32)),
            ("/queues/0/publishers/0/2", json!(-1.0)),
            ("/queues/0/publishers/0/1", json!("many")),
        ];
        for (place, value) in wrong {
            let mut message = sample();
            *message.pointer_mut(place).unwrap() = value.clone();
            assert!(parse(&message).is_none(), "{place} = {value}");
        }
        let mut long = sample();
        long["queues"] = vec![sample()["queues"][0].clone(); MOST_QUEUES + 1].into();
        assert!(parse(&long).is_none());
        assert!(read(&vec![b' '; MOST_BYTES + 1]).is_none());
    }

    /// One queue that others cannot take in costs the others nothing.
    #[test]
    fn a_wrong_queue_is_left_out() {
        let mut message = sample();
        let (sound, mut long) = (sample()["queues"][0].clone(), sample()["queues"][0].clone());
        long["filters"][0] = "x".repeat(MOST_NAME + 1).into();
        message["queues"] = json!([long, sound]);
        let (read, wrong) = read(message.to_string().as_bytes()).unwrap();
        assert_eq!((read.queues.len(), wrong), (1, 1));
        assert_eq!(read.queues[0].filters, ["s/#"]);
        assert_eq!(read.queues[0].bytes(), serde_json::to_vec(&read.queues[0]).unwrap().len() + 1);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&payload);
        }
    }
}
