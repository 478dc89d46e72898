//! MQTT 5 properties.

/// The properties of a PUBLISH from a client, validated. Borrows; nothing is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PublishProperties<'a> {
    /// All property bytes as they came (without the length in front).
    pub raw: &'a [u8],
    /// Topic Alias; never 0 here (0 is refused with 0x94 by the decoder).
    pub topic_alias: Option<u16>,
    /// Message Expiry Interval in seconds.
    pub message_expiry: Option<u32>,
}

impl PublishProperties<'_> {
    /// Appends the properties that a server passes on unchanged and in order: payload format, content type,
    /// response topic, correlation data, user properties. Leaves out topic alias and message expiry.
    pub fn write_forwarded(&self, _out: &mut Vec<u8>) {
        unimplemented!()
    }
}
