//! The packets as plain structs, and how a client writes them.

use super::property::{Properties, Value};

/// The two protocol versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V311,
    V5,
}

/// What can be sent: our structs, or any bytes.
pub trait Encode {
    fn encode(&self, version: Version) -> Vec<u8>;
}

impl<T: AsRef<[u8]> + ?Sized> Encode for T {
    fn encode(&self, _: Version) -> Vec<u8> {
        self.as_ref().to_vec()
    }
}

/// A packet from its first byte and what follows the remaining length.
pub fn frame(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    var_int(&mut out, body.len() as u32);
    out.extend_from_slice(body);
    out
}

/// A length in front of the bytes: an MQTT string or binary.
pub fn field(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u16::try_from(bytes.len()).expect("a field of 64 kB").to_be_bytes());
    out.extend_from_slice(bytes);
}

/// A variable byte integer.
pub fn var_int(out: &mut Vec<u8>, mut value: u32) {
    while value > 127 {
        out.push((value % 128) as u8 | 0x80);
        value /= 128;
    }
    out.push(value as u8);
}

/// The properties with their length in front; nothing for 3.1.1.
pub fn properties(out: &mut Vec<u8>, version: Version, list: &Properties) {
    if version == Version::V311 {
        assert!(list.is_empty(), "MQTT 3.1.1 has no properties");
        return;
    }
    let mut body = Vec::new();
    for (id, value) in list {
        body.push(*id);
        match value {
            Value::Byte(n) => body.push(*n),
            Value::Short(n) => body.extend_from_slice(&n.to_be_bytes()),
            Value::Int(n) => body.extend_from_slice(&n.to_be_bytes()),
            Value::VarInt(n) => var_int(&mut body, *n),
            Value::Text(text) => field(&mut body, text.as_bytes()),
            Value::Bytes(bytes) => field(&mut body, bytes),
            Value::Pair(name, value) => {
                field(&mut body, name.as_bytes());
                field(&mut body, value.as_bytes());
            }
        }
    }
    var_int(out, body.len() as u32);
    out.extend_from_slice(&body);
}

/// CONNECT. Everything can be made wrong.
#[derive(Debug, Clone)]
pub struct Connect {
    pub protocol: String,
    pub level: u8,
    pub clean: bool,
    pub keep_alive: u16,
    pub id: String,
    pub will: Option<Will>,
    pub user: Option<String>,
    pub password: Option<Vec<u8>>,
    pub properties: Properties,
    /// Bits to flip in the flags byte.
    pub flip: u8,
}

impl Connect {
    pub fn new(version: Version, id: &str) -> Self {
        let level = if version == Version::V5 { 5 } else { 4 };
        Self {
            protocol: "MQTT".into(),
            level,
            clean: true,
            keep_alive: 60,
            id: id.into(),
            will: None,
            user: None,
            password: None,
            properties: Vec::new(),
            flip: 0,
        }
    }

    pub fn v311(id: &str) -> Self {
        Self::new(Version::V311, id)
    }

    pub fn v5(id: &str) -> Self {
        Self::new(Version::V5, id)
    }

    /// A session that outlives its connection: clean session 0, or clean start 0 with a long expiry.
    pub fn persistent(version: Version, id: &str) -> Self {
        let connect = Self::new(version, id).resume();
        match version {
            Version::V311 => connect,
            Version::V5 => connect.with(super::property::int(super::property::SESSION_EXPIRY, 600)),
        }
    }

    /// Clean session 0 or clean start 0.
    pub fn resume(mut self) -> Self {
        self.clean = false;
        self
    }

    pub fn keep_alive(mut self, seconds: u16) -> Self {
        self.keep_alive = seconds;
        self
    }

    pub fn will(mut self, will: Will) -> Self {
        self.will = Some(will);
        self
    }

    pub fn with(mut self, property: (u8, Value)) -> Self {
        self.properties.push(property);
        self
    }

    pub fn flip(mut self, bits: u8) -> Self {
        self.flip = bits;
        self
    }

    pub fn version(&self) -> Version {
        if self.level == 5 { Version::V5 } else { Version::V311 }
    }

    fn flags(&self) -> u8 {
        let will = self.will.as_ref().map_or(0, |will| 0x04 | will.qos << 3 | u8::from(will.retain) << 5);
        let user = u8::from(self.user.is_some()) << 7 | u8::from(self.password.is_some()) << 6;
        (u8::from(self.clean) << 1 | will | user) ^ self.flip
    }
}

impl Encode for Connect {
    fn encode(&self, _: Version) -> Vec<u8> {
        let version = self.version();
        let mut body = Vec::new();
        field(&mut body, self.protocol.as_bytes());
        body.extend_from_slice(&[self.level, self.flags()]);
        body.extend_from_slice(&self.keep_alive.to_be_bytes());
        properties(&mut body, version, &self.properties);
        field(&mut body, self.id.as_bytes());
        if let Some(will) = &self.will {
            properties(&mut body, version, &will.properties);
            field(&mut body, will.topic.as_bytes());
            field(&mut body, &will.payload);
        }
        if let Some(user) = &self.user {
            field(&mut body, user.as_bytes());
        }
        if let Some(password) = &self.password {
            field(&mut body, password);
        }
        frame(0x10, &body)
    }
}

/// The will of a CONNECT.
#[derive(Debug, Clone)]
pub struct Will {
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub retain: bool,
    pub properties: Properties,
}

impl Will {
    pub fn new(topic: &str, payload: &str) -> Self {
        Self { topic: topic.into(), payload: payload.into(), qos: 0, retain: false, properties: Vec::new() }
    }

    pub fn qos(mut self, qos: u8) -> Self {
        self.qos = qos;
        self
    }

    pub fn retain(mut self) -> Self {
        self.retain = true;
        self
    }

    pub fn with(mut self, property: (u8, Value)) -> Self {
        self.properties.push(property);
        self
    }
}

/// PUBLISH, in both directions. An id of 0 at QoS 1 and 2 is filled in by `Client::publish`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    pub dup: bool,
    pub qos: u8,
    pub retain: bool,
    pub topic: String,
    pub id: u16,
    pub properties: Properties,
    pub payload: Vec<u8>,
}

impl Publish {
    pub fn new(topic: &str, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            dup: false,
            qos: 0,
            retain: false,
            topic: topic.into(),
            id: 0,
            properties: Vec::new(),
            payload: payload.into(),
        }
    }

    pub fn qos(mut self, qos: u8) -> Self {
        self.qos = qos;
        self
    }

    pub fn id(mut self, id: u16) -> Self {
        self.id = id;
        self
    }

    pub fn retain(mut self) -> Self {
        self.retain = true;
        self
    }

    pub fn dup(mut self) -> Self {
        self.dup = true;
        self
    }

    pub fn with(mut self, property: (u8, Value)) -> Self {
        self.properties.push(property);
        self
    }

    /// The payload as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.payload).expect("a payload of text")
    }
}

impl Encode for Publish {
    fn encode(&self, version: Version) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.payload.len() + self.topic.len() + 16);
        field(&mut body, self.topic.as_bytes());
        if self.qos > 0 {
            body.extend_from_slice(&self.id.to_be_bytes());
        }
        properties(&mut body, version, &self.properties);
        body.extend_from_slice(&self.payload);
        frame(0x30 | u8::from(self.dup) << 3 | self.qos << 1 | u8::from(self.retain), &body)
    }
}

/// Which acknowledgement; the value is the packet type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Puback = 4,
    Pubrec = 5,
    Pubrel = 6,
    Pubcomp = 7,
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    pub kind: Kind,
    pub id: u16,
    pub code: u8,
    pub properties: Properties,
}

impl Ack {
    pub fn new(kind: Kind, id: u16) -> Self {
        Self { kind, id, code: 0, properties: Vec::new() }
    }

    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

impl Encode for Ack {
    fn encode(&self, version: Version) -> Vec<u8> {
        let mut body = self.id.to_be_bytes().to_vec();
        if self.code != 0 || !self.properties.is_empty() {
            body.push(self.code);
            properties(&mut body, version, &self.properties);
        }
        let reserved = if self.kind == Kind::Pubrel { 2 } else { 0 };
        frame((self.kind as u8) << 4 | reserved, &body)
    }
}

/// Subscription options beside the QoS in the two lowest bits.
pub const NO_LOCAL: u8 = 0x04;
pub const RETAIN_AS_PUBLISHED: u8 = 0x08;
pub const RETAIN_IF_NEW: u8 = 0x10;
pub const RETAIN_NEVER: u8 = 0x20;

/// SUBSCRIBE: filters with their options byte.
#[derive(Debug, Clone)]
pub struct Subscribe {
    pub id: u16,
    pub filters: Vec<(String, u8)>,
    pub properties: Properties,
}

impl Subscribe {
    pub fn new(id: u16, filters: &[(&str, u8)]) -> Self {
        let filters = filters.iter().map(|(filter, options)| ((*filter).into(), *options)).collect();
        Self { id, filters, properties: Vec::new() }
    }

    pub fn with(mut self, property: (u8, Value)) -> Self {
        self.properties.push(property);
        self
    }
}

impl Encode for Subscribe {
    fn encode(&self, version: Version) -> Vec<u8> {
        let mut body = self.id.to_be_bytes().to_vec();
        properties(&mut body, version, &self.properties);
        for (filter, options) in &self.filters {
            field(&mut body, filter.as_bytes());
            body.push(*options);
        }
        frame(0x82, &body)
    }
}

/// UNSUBSCRIBE.
#[derive(Debug, Clone)]
pub struct Unsubscribe {
    pub id: u16,
    pub filters: Vec<String>,
}

impl Unsubscribe {
    pub fn new(id: u16, filters: &[&str]) -> Self {
        Self { id, filters: filters.iter().map(ToString::to_string).collect() }
    }
}

impl Encode for Unsubscribe {
    fn encode(&self, version: Version) -> Vec<u8> {
        let mut body = self.id.to_be_bytes().to_vec();
        properties(&mut body, version, &Vec::new());
        for filter in &self.filters {
            field(&mut body, filter.as_bytes());
        }
        frame(0xA2, &body)
    }
}

/// DISCONNECT, in both directions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Disconnect {
    pub code: u8,
    pub properties: Properties,
}

impl Disconnect {
    pub fn code(code: u8) -> Self {
        Self { code, properties: Vec::new() }
    }

    pub fn with(mut self, property: (u8, Value)) -> Self {
        self.properties.push(property);
        self
    }
}

impl Encode for Disconnect {
    fn encode(&self, version: Version) -> Vec<u8> {
        let mut body = Vec::new();
        if self.code != 0 || !self.properties.is_empty() {
            body.push(self.code);
            properties(&mut body, version, &self.properties);
        }
        frame(0xE0, &body)
    }
}

/// PINGREQ.
pub const PINGREQ: [u8; 2] = [0xC0, 0];
