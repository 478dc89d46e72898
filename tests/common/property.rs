//! MQTT 5 properties, as a list: order and repetition are the test's business.

/// The value of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Byte(u8),
    Short(u16),
    Int(u32),
    VarInt(u32),
    Text(String),
    Bytes(Vec<u8>),
    Pair(String, String),
}

/// Properties in the order of the packet.
pub type Properties = Vec<(u8, Value)>;

pub const PAYLOAD_FORMAT: u8 = 0x01;
pub const MESSAGE_EXPIRY: u8 = 0x02;
pub const CONTENT_TYPE: u8 = 0x03;
pub const RESPONSE_TOPIC: u8 = 0x08;
pub const CORRELATION_DATA: u8 = 0x09;
pub const SUBSCRIPTION_ID: u8 = 0x0B;
pub const SESSION_EXPIRY: u8 = 0x11;
pub const ASSIGNED_CLIENT_ID: u8 = 0x12;
pub const SERVER_KEEP_ALIVE: u8 = 0x13;
pub const AUTHENTICATION_METHOD: u8 = 0x15;
pub const AUTHENTICATION_DATA: u8 = 0x16;
pub const REQUEST_PROBLEM_INFORMATION: u8 = 0x17;
pub const WILL_DELAY: u8 = 0x18;
pub const REQUEST_RESPONSE_INFORMATION: u8 = 0x19;
pub const RESPONSE_INFORMATION: u8 = 0x1A;
pub const SERVER_REFERENCE: u8 = 0x1C;
pub const REASON_STRING: u8 = 0x1F;
pub const RECEIVE_MAXIMUM: u8 = 0x21;
pub const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
pub const TOPIC_ALIAS: u8 = 0x23;
pub const MAXIMUM_QOS: u8 = 0x24;
pub const RETAIN_AVAILABLE: u8 = 0x25;
pub const USER_PROPERTY: u8 = 0x26;
pub const MAXIMUM_PACKET_SIZE: u8 = 0x27;
pub const WILDCARD_SUBSCRIPTION_AVAILABLE: u8 = 0x28;
pub const SUBSCRIPTION_IDS_AVAILABLE: u8 = 0x29;
pub const SHARED_SUBSCRIPTION_AVAILABLE: u8 = 0x2A;

pub fn byte(id: u8, value: u8) -> (u8, Value) {
    (id, Value::Byte(value))
}

pub fn short(id: u8, value: u16) -> (u8, Value) {
    (id, Value::Short(value))
}

pub fn int(id: u8, value: u32) -> (u8, Value) {
    (id, Value::Int(value))
}

pub fn text(id: u8, value: &str) -> (u8, Value) {
    (id, Value::Text(value.into()))
}

pub fn bytes(id: u8, value: &[u8]) -> (u8, Value) {
    (id, Value::Bytes(value.into()))
}

pub fn user(name: &str, value: &str) -> (u8, Value) {
    (USER_PROPERTY, Value::Pair(name.into(), value.into()))
}

pub fn subscription_id(value: u32) -> (u8, Value) {
    (SUBSCRIPTION_ID, Value::VarInt(value))
}

/// Reading a list of properties.
pub trait Lookup {
    /// The value of a property, if it is there.
    fn find(&self, id: u8) -> Option<&Value>;

    /// The numbers of all properties with this id, sorted.
    fn numbers(&self, id: u8) -> Vec<u32>;

    /// The value of a numeric property, if it is there.
    fn number(&self, id: u8) -> Option<u32> {
        self.find(id).map(number)
    }

    /// The value of a text property, if it is there.
    fn text(&self, id: u8) -> Option<&str> {
        match self.find(id)? {
            Value::Text(text) => Some(text),
            other => panic!("property 0x{id:02x} is {other:?}"),
        }
    }

    /// The user properties in order.
    fn users(&self) -> Vec<(&str, &str)>;
}

impl Lookup for Properties {
    fn find(&self, id: u8) -> Option<&Value> {
        self.iter().find(|(found, _)| *found == id).map(|(_, value)| value)
    }

    fn numbers(&self, id: u8) -> Vec<u32> {
        let mut all: Vec<u32> =
            self.iter().filter(|(found, _)| *found == id).map(|(_, value)| number(value)).collect();
        all.sort_unstable();
        all
    }

    fn users(&self) -> Vec<(&str, &str)> {
        let pairs = self.iter().filter_map(|(_, value)| match value {
            Value::Pair(name, value) => Some((name.as_str(), value.as_str())),
            _ => None,
        });
        pairs.collect()
    }
}

fn number(value: &Value) -> u32 {
    match value {
        Value::Byte(n) => u32::from(*n),
        Value::Short(n) => u32::from(*n),
        Value::Int(n) | Value::VarInt(n) => *n,
        other => panic!("{other:?} is not a number"),
    }
}
