//! What plugins may ask of the proxy.

use std::sync::Arc;

use tidegate_plugin::{Crowd, Host, Publisher};

use super::Proxy;
use crate::wire::correlation_data;

impl Host for Proxy {
    /// Control topics only: there is no connection of the gateway's own to the upstream.
    fn publish(&self, topic: &str, payload: &[u8], retain: bool) {
        if self.control.owns(topic) {
            self.stats.own_left_out.add(self.control.publish(topic, payload, retain));
        } else {
            self.stats.own_left_out.add(1);
        }
    }

    fn retain(&self, topic: &str, payload: &[u8]) {
        if self.control.owns(topic) {
            self.control.retain(topic, payload);
        }
    }

    fn respond(&self, topic: &str, payload: &[u8], correlation: Option<&[u8]>) -> bool {
        if !self.control.owns(topic) {
            self.stats.own_left_out.add(1);
            return true;
        }
        let mut properties = Vec::new();
        if let Some(data) = correlation {
            correlation_data(&mut properties, data);
        }
        let gone = self.control.respond(topic, payload, properties);
        self.stats.own_left_out.add(gone.unwrap_or(0));
        gone.is_some()
    }

    fn subscribers(&self, topic: &str) -> usize {
        self.control.subscribers(topic)
    }

    fn publisher(&self, number: u64) -> Option<Arc<Publisher>> {
        self.sessions.publisher(number)
    }

    fn tell_crowds(&self, queue: u64, crowds: Vec<Crowd>) {
        if let Some(nodes) = &self.nodes {
            nodes.tell_crowds(queue, crowds);
        }
    }
}
