// Follows Tidegate's rates with nothing but mqtt.js: node thermometer.cjs mqtt://host:port client [seconds] [prefix]
const [url, client, seconds = Infinity, prefix = "$tide/v1"] = process.argv.slice(2);
const OWN_RATE = 5, told = new Map(), clock = () => performance.now() / 1000; // by topic: its number, rate, until when it holds
function onRate(topic, number, rate, ttl = Infinity) { // what says no time holds until there is news
  const stale = number < told.get(topic)?.number && clock() < told.get(topic).until; // an older message that came late
  if (!stale && (rate === null || (rate > 0 && rate < Infinity))) told.set(topic, { number, rate, until: clock() + ttl });
}
const rank = ([topic, { until }]) => (until > clock() ? 1e6 : 0) + topic.length; // the most special that is fresh comes first
const best = () => [...told].sort((a, b) => rank(b) - rank(a))[0]?.[0] ?? `${prefix}/rate`;
const rateNow = ({ rate, until } = told.get(best()) ?? { rate: null }) => // an old rate grows by a tenth each second
  rate === null ? OWN_RATE : Math.min(OWN_RATE, rate * 1.1 ** Math.max(0, clock() - until));
const mq = require("mqtt").connect(url, { clientId: client, protocolVersion: 5 });
mq.on("connect", () => { // the gateway may have started again: old numbers are void, and nothing holds for ever
  told.forEach((said) => Object.assign(said, { number: 0, until: Math.min(said.until, clock() + 10) }));
  mq.subscribe([`${prefix}/rate`, `${prefix}/rate/client/${client}`], { qos: 1 });
});
mq.on("message", (topic, payload) => {
  if (payload.length === 0) return told.delete(topic); // taken back
  try { const { seq = 0, rate, ttl_ms = Infinity } = JSON.parse(payload); onRate(topic, seq, rate, ttl_ms / 1000); } catch {}
});
let [waiting, flying, sent, pause, last, credit] = [[0, 0], [0, 0], [0, 0], 0, clock(), Math.random()]; // in random phase
mq.on("packetreceive", ({ cmd, reasonCode, properties }) => {
  const { "tide-rate": rate, "tide-wait-ms": wait = 1000 } = properties?.userProperties ?? {};
  if (cmd !== "puback") return;
  if (rate) onRate(best(), told.get(best())?.number ?? 0, rate === "null" ? null : Number(rate)); // without it nothing changed
  const [sum, count] = flying.splice(0, 2, 0, 0); // 0x97: too fast, they go again after that time and a random bit more
  if (reasonCode !== 0x97) return (sent = [sent[0] + 1, sent[1] + count]);
  [waiting, pause] = [[waiting[0] + sum, waiting[1] + count], clock() + (wait / 1000) * (1 + Math.random() / 2)];
});
const timer = setInterval(() => {
  if (clock() < seconds) waiting = [waiting[0] + 21 + Math.sin(clock()), waiting[1] + 1];
  [credit, last] = [Math.min(1, credit + (clock() - last) * rateNow()), clock()];
  if (waiting[1] && !flying[1] && credit >= 1 && clock() >= pause) {
    [credit, flying, waiting] = [0, waiting, [0, 0]];
    mq.publish(`room/${client}/temp`, JSON.stringify({ mean: flying[0] / flying[1], count: flying[1] }), { qos: 1 });
  }
  if (clock() < seconds || waiting[1] || flying[1]) return;
  console.log(`done: ${sent[0]} messages for ${sent[1]} samples at ${rateNow()} a second`);
  mq.end(clearInterval(timer));
}, 50);
