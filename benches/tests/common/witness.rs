//! A relay in front of a broker that spoils what goes to consumers, and keeps books of its own.
//!
//! Nothing of the generator is used here: packets are taken apart, topics matched and deliveries counted a second time, in
//! the plainest way, so that a mistake of the generator can't be made twice.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Packet identifiers from this one on are the relay's own: brokers count from 1, and no test sends as much.
const OWN: u16 = 60_000;
/// A message that is to change places waits no longer than this for the next one of its flow.
const WAIT: Duration = Duration::from_millis(100);
/// How long the broker is not told of an acknowledgement. It must hear of it in the end: a broker that does not know of twenty
/// or so has no room towards its consumer, and what it accepted meanwhile would wait for ever.
const DEAF: Duration = Duration::from_millis(300);

/// A message by its flow and its number in it.
type Message = (u32, u64);

/// What is done to a message on its way to a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    /// It is dropped, however often it comes.
    Drop,
    /// It is passed on twice, as two deliveries.
    Repeat,
    /// The same packet is passed on twice: with QoS 2 that is one delivery.
    Echo,
    /// It is passed on to another member of its group as well.
    Stray,
    /// It changes places with the next one of its flow.
    Swap,
}

/// What a relay is up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mischief {
    /// Each deed is done to some messages.
    Deeds,
    /// Some acknowledgements of consumers reach the broker late, and never if the connection has ended by then.
    Deafness,
}

/// What happened, as the generator should report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truth {
    pub sent: u64,
    pub accepted: u64,
    pub expected: u64,
    pub delivered: u64,
    pub lost: u64,
    pub duplicates: u64,
    pub out_of_order: u64,
}

/// A relay that runs as long as the test.
pub struct Witness {
    /// Where it listens.
    pub address: SocketAddr,
    books: Arc<Mutex<Books>>,
}

impl Witness {
    /// Listens on a free port and passes on to the broker.
    pub async fn start(broker: SocketAddr, mischief: Mischief) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let books = Arc::new(Mutex::new(Books::default()));
        let kept = books.clone();
        tokio::spawn(async move {
            for number in 0.. {
                let Ok((client, _)) = listener.accept().await else { return };
                let broker = TcpStream::connect(broker).await.unwrap();
                tokio::spawn(Connection::new(number, mischief, kept.clone()).serve(client, broker));
            }
        });
        Self { address, books }
    }

    /// How often each thing was done.
    pub fn deeds(&self) -> BTreeMap<Deed, u64> {
        self.books.lock().deeds.clone()
    }

    /// What happened so far.
    pub fn truth(&self) -> Truth {
        self.books.lock().truth()
    }
}

#[derive(Default)]
struct Books {
    /// The topic of each message that a device has published.
    published: BTreeMap<Message, String>,
    accepted: BTreeSet<Message>,
    /// The filter of each group, and of each client that is in none.
    filters: BTreeMap<String, String>,
    /// Connections by group or client.
    members: BTreeMap<String, Vec<(usize, mpsc::UnboundedSender<Publish>)>>,
    /// How often each group or client was given each message.
    given: BTreeMap<(String, Message), u64>,
    /// The newest message of each flow on each connection.
    newest: BTreeMap<(usize, u32), u64>,
    out_of_order: u64,
    deeds: BTreeMap<Deed, u64>,
}

impl Books {
    fn truth(&self) -> Truth {
        let matches = |filter: &str, topic: &str| match filter.strip_suffix('#') {
            Some(start) => topic.starts_with(start),
            None => filter == topic,
        };
        let (mut expected, mut lost) = (0, 0);
        for message in &self.accepted {
            for (stream, _) in
                self.filters.iter().filter(|(_, filter)| matches(filter, &self.published[message]))
            {
                expected += 1;
                lost += u64::from(!self.given.contains_key(&(stream.clone(), *message)));
            }
        }
        Truth {
            sent: self.published.len() as u64,
            accepted: self.accepted.len() as u64,
            expected,
            delivered: self.given.values().sum(),
            lost,
            duplicates: self.given.values().map(|count| count - 1).sum(),
            out_of_order: self.out_of_order,
        }
    }

    fn give(&mut self, stream: &str, connection: usize, message: Message) {
        let count = self.given.entry((stream.to_owned(), message)).or_default();
        *count += 1;
        if *count == 1 {
            let newest = self.newest.entry((connection, message.0)).or_default();
            self.out_of_order += u64::from(message.1 < *newest);
            *newest = message.1.max(*newest);
        }
    }
}

/// A PUBLISH, taken apart.
#[derive(Debug, Clone)]
struct Publish {
    bytes: Vec<u8>,
    qos: u8,
    /// Where the packet identifier stands, and its value.
    id_at: usize,
    id: u16,
    topic: String,
    message: Message,
}

impl Publish {
    fn with_id(&self, id: u16) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        if self.qos > 0 {
            bytes[self.id_at..self.id_at + 2].copy_from_slice(&id.to_be_bytes());
        }
        bytes
    }
}

struct Connection {
    number: usize,
    mischief: Mischief,
    books: Arc<Mutex<Books>>,
    is_v5: bool,
    client: String,
    /// The group or client for which this one gets messages, once it has subscribed.
    stream: Option<String>,
    /// Messages that wait for an answer of the broker.
    asked: HashMap<u16, Message>,
    /// The last message with each packet identifier that this one was given.
    passed: HashMap<u16, Message>,
    /// Messages that another member gets when this one has answered.
    straying: HashMap<u16, Publish>,
    held: Option<Publish>,
    /// Acknowledgements that the broker gets later.
    withheld: VecDeque<(Instant, Vec<u8>)>,
    next_own: u16,
    sender: mpsc::UnboundedSender<Publish>,
    strays: mpsc::UnboundedReceiver<Publish>,
}

impl Connection {
    fn new(number: usize, mischief: Mischief, books: Arc<Mutex<Books>>) -> Self {
        let (sender, strays) = mpsc::unbounded_channel();
        Self {
            number,
            mischief,
            books,
            is_v5: false,
            client: String::new(),
            stream: None,
            asked: HashMap::new(),
            passed: HashMap::new(),
            straying: HashMap::new(),
            held: None,
            withheld: VecDeque::new(),
            next_own: OWN,
            sender,
            strays,
        }
    }

    async fn serve(mut self, mut client: TcpStream, mut broker: TcpStream) {
        let (mut from_client, mut from_broker) = (Vec::new(), Vec::new());
        loop {
            let (mut to_client, mut to_broker) = (Vec::new(), Vec::new());
            let deaf_until = self.withheld.front().map(|(until, _)| *until);
            tokio::select! {
                size = client.read_buf(&mut from_client) => if size.unwrap_or(0) == 0 { return },
                size = broker.read_buf(&mut from_broker) => if size.unwrap_or(0) == 0 { return },
                Some(stray) = self.strays.recv() => self.give_again(&stray, &mut to_client),
                () = tokio::time::sleep(WAIT), if self.held.is_some() => {
                    let held = self.held.take().unwrap();
                    self.give(&held, &mut to_client);
                }
                () = tokio::time::sleep_until(deaf_until.unwrap_or_else(Instant::now)), if deaf_until.is_some() => {
                    to_broker.extend(self.withheld.pop_front().unwrap().1);
                }
            }
            while let Some((packet, body)) = first_packet(&mut from_client) {
                self.towards_broker(packet, body, &mut to_client, &mut to_broker);
            }
            while let Some((packet, body)) = first_packet(&mut from_broker) {
                self.towards_client(packet, body, &mut to_client);
            }
            if client.write_all(&to_client).await.is_err() || broker.write_all(&to_broker).await.is_err() {
                return;
            }
        }
    }

    fn towards_broker(
        &mut self,
        packet: Vec<u8>,
        body: usize,
        to_client: &mut Vec<u8>,
        to_broker: &mut Vec<u8>,
    ) {
        let content = &packet[body..];
        match packet[0] >> 4 {
            1 => {
                self.is_v5 = content[6] == 5;
                let properties = if self.is_v5 { 1 + usize::from(content[10]) } else { 0 };
                self.client = text(&content[10 + properties..]);
            }
            3 => {
                let publish = self.take_apart(&packet, body);
                let mut books = self.books.lock();
                books.published.insert(publish.message, publish.topic);
                match publish.qos {
                    0 => drop(books.accepted.insert(publish.message)),
                    _ => drop(self.asked.insert(publish.id, publish.message)),
                }
            }
            kind @ (4 | 5 | 7) if number(content) >= OWN => {
                if kind == 5 {
                    to_client.extend([0x62, 2, content[0], content[1]]);
                }
                return;
            }
            4 | 5 if self.is_deaf(number(content)) => {
                return self.withheld.push_back((Instant::now() + DEAF, packet));
            }
            4 | 5 => {
                if let Some(stray) = self.straying.remove(&number(content)) {
                    self.send_astray(stray);
                }
            }
            8 => self.subscribe(&text(&content[2 + usize::from(self.is_v5)..])),
            _ => {}
        }
        to_broker.extend(packet);
    }

    fn towards_client(&mut self, packet: Vec<u8>, body: usize, to_client: &mut Vec<u8>) {
        let content = &packet[body..];
        match packet[0] >> 4 {
            4 | 5 => {
                let is_refused = content.get(2).is_some_and(|reason| *reason >= 0x80);
                if let (Some(message), false) = (self.asked.remove(&number(content)), is_refused) {
                    self.books.lock().accepted.insert(message);
                }
            }
            3 if self.stream.is_some() => {
                let publish = self.take_apart(&packet, body);
                self.passed.insert(publish.id, publish.message);
                return self.decide(publish, to_client);
            }
            _ => {}
        }
        to_client.extend(packet);
    }

    /// Whether the broker is not to know yet that a consumer has taken this one.
    fn is_deaf(&self, id: u16) -> bool {
        self.mischief == Mischief::Deafness && self.passed.get(&id).is_some_and(|message| message.1 % 5 == 0)
    }

    fn subscribe(&mut self, filter: &str) {
        let (stream, filter) = match filter.strip_prefix("$share/") {
            Some(rest) => rest.split_once('/').unwrap(),
            None => (self.client.as_str(), filter),
        };
        let mut books = self.books.lock();
        books.filters.insert(stream.to_owned(), filter.to_owned());
        books.members.entry(stream.to_owned()).or_default().push((self.number, self.sender.clone()));
        self.stream = Some(stream.to_owned());
    }

    fn decide(&mut self, publish: Publish, to_client: &mut Vec<u8>) {
        let deed = self.deed(&publish);
        if deed == Some(Deed::Drop) {
            return self.note(Deed::Drop);
        }
        if let Some(held) = self.held.take_if(|held| held.message.0 == publish.message.0) {
            self.give(&publish, to_client);
            self.give(&held, to_client);
            return self.note(Deed::Swap);
        }
        match deed {
            Some(Deed::Swap) if self.held.is_none() => {
                self.held = Some(publish);
                return;
            }
            Some(Deed::Stray) => drop(self.straying.insert(publish.id, publish.clone())),
            _ => {}
        }
        self.give(&publish, to_client);
        match deed {
            Some(Deed::Repeat) => {
                self.give_again(&publish, to_client);
                self.note(Deed::Repeat);
            }
            Some(Deed::Echo) => {
                to_client.extend(&publish.bytes);
                if publish.qos < 2 {
                    let stream = self.stream.clone().unwrap();
                    self.books.lock().give(&stream, self.number, publish.message);
                }
                self.note(Deed::Echo);
            }
            _ => {}
        }
    }

    /// By the message and by who gets it: the same message fares differently elsewhere, and the same when it comes again.
    fn deed(&self, publish: &Publish) -> Option<Deed> {
        if self.mischief == Mischief::Deafness {
            return None;
        }
        let stream = self.stream.as_ref().unwrap();
        let name: u64 = stream.bytes().map(u64::from).sum();
        let is_shared = self.books.lock().members[stream].len() > 1;
        match (7 * publish.message.1 + 5 * u64::from(publish.message.0) + name) % 31 {
            2 => Some(Deed::Drop),
            11 => Some(Deed::Repeat),
            17 => Some(Deed::Echo),
            23 if is_shared && publish.qos > 0 => Some(Deed::Stray),
            5 | 29 => Some(Deed::Swap),
            _ => None,
        }
    }

    fn give(&self, publish: &Publish, to_client: &mut Vec<u8>) {
        let stream = self.stream.as_ref().unwrap();
        self.books.lock().give(stream, self.number, publish.message);
        to_client.extend(&publish.bytes);
    }

    /// Gives a message once more, as a packet of the relay's own.
    fn give_again(&mut self, publish: &Publish, to_client: &mut Vec<u8>) {
        let bytes = publish.with_id(self.next_own);
        self.next_own = if self.next_own == u16::MAX { OWN } else { self.next_own + 1 };
        self.give(&Publish { bytes, ..publish.clone() }, to_client);
    }

    /// Another member of the group gets a message too, after this one has counted it.
    fn send_astray(&self, publish: Publish) {
        let books = self.books.lock();
        let members = &books.members[self.stream.as_ref().unwrap()];
        if let Some((_, other)) = members.iter().find(|(number, _)| *number != self.number) {
            other.send(publish).unwrap();
            drop(books);
            self.note(Deed::Stray);
        }
    }

    fn note(&self, deed: Deed) {
        *self.books.lock().deeds.entry(deed).or_default() += 1;
    }

    fn take_apart(&self, packet: &[u8], body: usize) -> Publish {
        let qos = packet[0] >> 1 & 3;
        let topic = text(&packet[body..]);
        let id_at = body + 2 + topic.len();
        let mut at = id_at;
        let id = if qos > 0 { number(&packet[at..]) } else { 0 };
        at += if qos > 0 { 2 } else { 0 };
        // Properties of less than 128 bytes.
        at += if self.is_v5 { 1 + usize::from(packet[at]) } else { 0 };
        let payload = &packet[at..];
        let flow = u32::from_be_bytes(payload[4..8].try_into().unwrap());
        let count = u64::from_be_bytes(payload[8..16].try_into().unwrap());
        Publish { bytes: packet.to_vec(), qos, id_at, id, topic, message: (flow, count) }
    }
}

/// Takes the first whole packet away, with the place where its body begins.
fn first_packet(buffer: &mut Vec<u8>) -> Option<(Vec<u8>, usize)> {
    let (mut length, mut at) = (0, 1);
    loop {
        let byte = *buffer.get(at)?;
        length |= usize::from(byte & 127) << (7 * (at - 1));
        at += 1;
        if byte < 128 {
            break;
        }
    }
    (buffer.len() >= at + length).then(|| (buffer.drain(..at + length).collect(), at))
}

fn number(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

fn text(bytes: &[u8]) -> String {
    let length = usize::from(number(bytes));
    String::from_utf8(bytes[2..2 + length].to_vec()).unwrap()
}
