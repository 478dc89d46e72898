"""Drives paho-mqtt against a server: port transport version prefix [authority]."""

import queue
import sys

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

PORT, TRANSPORT, VERSION, PREFIX = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
AUTHORITY = sys.argv[5] if len(sys.argv) > 5 else None
V5 = VERSION == "5"
PATIENCE = 20


class Peer:
    """A client whose messages wait in a queue."""

    def __init__(self, name, persistent=False, will=None):
        protocol = mqtt.MQTTv5 if V5 else mqtt.MQTTv311
        options = {} if V5 else {"clean_session": not persistent}
        self.client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, PREFIX + name, protocol=protocol, transport=TRANSPORT, **options
        )
        self.messages, self.events = queue.Queue(), queue.Queue()
        self.client.on_message = lambda client, data, message: self.messages.put(message)
        self.client.on_connect = lambda client, data, flags, code, properties: self.events.put((flags, code))
        self.client.on_subscribe = lambda client, data, mid, codes, properties: self.events.put(codes)
        if will:
            self.client.will_set(*will)
        if TRANSPORT == "websockets":
            self.client.ws_set_options(path="/mqtt")
        if AUTHORITY:
            self.client.tls_set(AUTHORITY)
        arguments = {}
        if V5:
            expiry = Properties(PacketTypes.CONNECT)
            expiry.SessionExpiryInterval = 600 if persistent else 0
            arguments = {"clean_start": not persistent, "properties": expiry}
        self.client.connect("127.0.0.1", PORT, 30, **arguments)
        self.client.loop_start()
        self.flags, code = self.events.get(timeout=PATIENCE)
        assert not code.is_failure, code

    def subscribe(self, topic, qos):
        self.client.subscribe(topic, qos)
        codes = self.events.get(timeout=PATIENCE)
        assert [code.value for code in codes] == [qos], codes
        return self

    def publish(self, topic, payload, qos, retain=False, properties=None):
        info = self.client.publish(topic, payload, qos, retain, properties)
        info.wait_for_publish(PATIENCE)
        assert info.is_published(), (topic, payload)

    def receive(self):
        return self.messages.get(timeout=PATIENCE)

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()


def series():
    """Fifty messages at each QoS, in order."""
    subscriber = Peer("sub").subscribe(f"{PREFIX}/series/#", 2)
    publisher = Peer("pub")
    for qos in range(3):
        for number in range(50):
            publisher.publish(f"{PREFIX}/series/{qos}", str(number), qos)
        for number in range(50):
            message = subscriber.receive()
            found = (message.topic, message.payload, message.qos, message.retain)
            assert found == (f"{PREFIX}/series/{qos}", str(number).encode(), qos, False), found
    large = bytes(range(256)) * 1024
    publisher.publish(f"{PREFIX}/series/large", large, 1)
    assert subscriber.receive().payload == large
    subscriber.close()
    publisher.close()


def retained():
    """A retained message comes with its flag, and can be deleted."""
    topic, publisher = f"{PREFIX}/retained", Peer("pub")
    publisher.publish(topic, "kept", 1, True)
    first = Peer("first").subscribe(topic, 1)
    message = first.receive()
    assert (message.payload, message.retain) == (b"kept", True), message
    publisher.publish(topic, "", 1, True)
    assert first.receive().payload == b""
    second = Peer("second").subscribe(topic, 1)
    publisher.publish(topic, "live", 1)
    assert second.receive().payload == b"live"
    for peer in (publisher, first, second):
        peer.close()


def session():
    """What comes while a persistent client is away waits for it."""
    topic, publisher = f"{PREFIX}/away", Peer("pub")
    Peer("keeper", persistent=True).subscribe(topic, 1).close()
    publisher.publish(topic, "waiting", 1)
    keeper = Peer("keeper", persistent=True)
    assert keeper.flags.session_present
    assert keeper.receive().payload == b"waiting"
    keeper.close()
    publisher.close()


def will():
    """A connection that breaks publishes the will."""
    topic = f"{PREFIX}/will"
    watcher = Peer("watcher").subscribe(topic, 1)
    mortal = Peer("mortal", will=(topic, "gone", 1, False))
    mortal.client.loop_stop()
    mortal.client.socket().close()
    assert watcher.receive().payload == b"gone"
    watcher.close()


def properties():
    """MQTT 5 properties come through."""
    topic, peer = f"{PREFIX}/properties", Peer("props")
    peer.subscribe(topic, 1)
    sent = Properties(PacketTypes.PUBLISH)
    sent.ContentType, sent.ResponseTopic, sent.CorrelationData = "text/plain", "answer", b"\0\xff"
    sent.UserProperty = [("b", "1"), ("a", "2")]
    peer.publish(topic, "x", 1, properties=sent)
    got = peer.receive().properties
    assert got.UserProperty == [("b", "1"), ("a", "2")], got.UserProperty
    assert (got.ContentType, got.ResponseTopic, got.CorrelationData) == ("text/plain", "answer", b"\0\xff")
    peer.close()


for check in (series, retained, session, will, *([properties] if V5 else [])):
    print(check.__name__, flush=True)
    check()
print("all checks passed")
