// Drives mqtt.js against a server: url version prefix.
const assert = require('node:assert/strict');
const mqtt = require('mqtt');

const [url, version, prefix] = process.argv.slice(2);
const v5 = version === '5';
const patience = 20_000;

// A client whose messages wait in a queue.
class Peer {
  static async connect(name, options = {}) {
    const peer = new Peer();
    peer.messages = [];
    peer.waiting = [];
    const all = { clientId: prefix + name, protocolVersion: Number(version), reconnectPeriod: 0, ...options };
    peer.client = mqtt.connect(url, all);
    peer.client.on('message', (topic, payload, packet) => {
      const next = peer.waiting.shift();
      if (next) next(packet); else peer.messages.push(packet);
    });
    peer.connack = await new Promise((resolve, reject) => {
      peer.client.once('connect', resolve);
      peer.client.once('error', reject);
      setTimeout(() => reject(new Error('no CONNACK')), patience).unref();
    });
    return peer;
  }

  async subscribe(topic, qos) {
    const [granted] = await this.client.subscribeAsync(topic, { qos });
    assert.equal(granted.qos, qos);
    return this;
  }

  publish(topic, payload, options) {
    return this.client.publishAsync(topic, payload, options);
  }

  receive() {
    if (this.messages.length) return Promise.resolve(this.messages.shift());
    return new Promise((resolve, reject) => {
      this.waiting.push(resolve);
      setTimeout(() => reject(new Error('no message')), patience).unref();
    });
  }

  close() {
    return this.client.endAsync();
  }
}

const persistent = v5 ? { clean: false, properties: { sessionExpiryInterval: 600 } } : { clean: false };

const checks = {
  async series() {
    const subscriber = await (await Peer.connect('sub')).subscribe(`${prefix}/series/#`, 2);
    const publisher = await Peer.connect('pub');
    for (const qos of [0, 1, 2]) {
      const topic = `${prefix}/series/${qos}`;
      await Promise.all(Array.from({ length: 50 }, (_, n) => publisher.publish(topic, String(n), { qos })));
      for (let n = 0; n < 50; n++) {
        const packet = await subscriber.receive();
        assert.deepEqual([packet.topic, String(packet.payload), packet.qos], [topic, String(n), qos]);
      }
    }
    const large = Buffer.alloc(300_000, 'abc');
    await publisher.publish(`${prefix}/series/large`, large, { qos: 1 });
    assert.ok(large.equals((await subscriber.receive()).payload));
    await subscriber.close();
    await publisher.close();
  },

  async retained() {
    const topic = `${prefix}/retained`;
    const publisher = await Peer.connect('pub');
    await publisher.publish(topic, 'kept', { qos: 1, retain: true });
    const late = await (await Peer.connect('late')).subscribe(topic, 1);
    const packet = await late.receive();
    assert.deepEqual([String(packet.payload), packet.retain], ['kept', true]);
    await publisher.publish(topic, '', { qos: 1, retain: true });
    assert.equal(String((await late.receive()).payload), '');
    await late.close();
    await publisher.close();
  },

  async session() {
    const topic = `${prefix}/away`;
    const first = await (await Peer.connect('keeper', persistent)).subscribe(topic, 1);
    await first.close();
    const publisher = await Peer.connect('pub');
    await publisher.publish(topic, 'waiting', { qos: 1 });
    const second = await Peer.connect('keeper', persistent);
    assert.ok(second.connack.sessionPresent);
    assert.equal(String((await second.receive()).payload), 'waiting');
    await second.close();
    await publisher.close();
  },

  async will() {
    const topic = `${prefix}/will`;
    const watcher = await (await Peer.connect('watcher')).subscribe(topic, 1);
    const mortal = await Peer.connect('mortal', { will: { topic, payload: Buffer.from('gone'), qos: 1 } });
    mortal.client.stream.destroy();
    assert.equal(String((await watcher.receive()).payload), 'gone');
    await watcher.close();
  },

  async properties() {
    if (!v5) return;
    const topic = `${prefix}/properties`;
    const peer = await (await Peer.connect('props')).subscribe(topic, 1);
    const properties = {
      contentType: 'text/plain',
      responseTopic: 'answer',
      correlationData: Buffer.from([0, 255]),
      userProperties: { b: ['1', '3'], a: '2' },
    };
    await peer.publish(topic, 'x', { qos: 1, properties });
    const got = (await peer.receive()).properties;
    assert.deepEqual({ ...got.userProperties }, properties.userProperties);
    assert.equal(got.contentType, 'text/plain');
    assert.equal(got.responseTopic, 'answer');
    assert.ok(properties.correlationData.equals(got.correlationData));
    await peer.close();
  },
};

(async () => {
  for (const [name, check] of Object.entries(checks)) {
    console.log(name);
    await check();
  }
  console.log('all checks passed');
  process.exit(0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
