// Follows Tidegate's rates with nothing but mqtt.js: node thermometer.cjs mqtt://host:port client [seconds] [prefix]
const mqtt = require("mqtt");
const [url, client, seconds = "Infinity", prefix = "$tide/v1"] = process.argv.slice(2);
const OWN_RATE = 5; // messages a second while nobody asks for less
const told = new Map(); // what each source said last: its number, its rate, until when it holds
const clock = () => performance.now() / 1000;

function onRate(source, number, rate, ttl) {
  const known = told.get(source);
  if (known && number < known.number && clock() < known.until) return; // an older message that came late
  if (rate === null || rate > 0) told.set(source, { number, rate, until: clock() + ttl });
}
function rateNow() { // the most special source that is fresh; an old rate grows by a tenth each second, without a jump
  const rank = ([source, { until }]) => (until > clock() ? 1e6 : 0) + source.length;
  const best = [...told].sort((a, b) => rank(b) - rank(a))[0]?.[1];
  return Math.min(OWN_RATE, (best?.rate ?? OWN_RATE) * 1.1 ** Math.max(0, clock() - (best?.until ?? 0)));
}
const mq = mqtt.connect(url, { clientId: client, protocolVersion: 5 });
mq.on("connect", () => mq.subscribe([`${prefix}/rate`, `${prefix}/rate/client/${client}`], { qos: 1 }));
mq.on("message", (topic, payload) => {
  if (payload.length === 0) return told.delete(topic); // taken back
  try {
    const news = JSON.parse(payload);
    if (news.rate !== undefined) onRate(topic, news.seq ?? 0, news.rate, (news.ttl_ms ?? 10_000) / 1000);
  } catch {} // nonsense
});
mq.on("packetreceive", (packet) => {
  const rate = packet.cmd === "puback" && packet.properties?.userProperties?.["tide-rate"];
  if (rate) onRate("ack".padEnd(99), 0, rate === "null" ? null : Number(rate), 10);
});
let [last, total, count, sent, phase] = [clock(), 0, 0, 0, Math.random()]; // a random phase: no fleet sends in step
const timer = setInterval(() => {
  if (clock() < Number(seconds)) [total, count] = [total + 21 + Math.sin(clock()), count + 1];
  if (count && mq.connected && clock() - last >= (1 + phase) / rateNow()) {
    mq.publish(`room/${client}/temp`, JSON.stringify({ mean: total / count, count }), { qos: 1 });
    [last, total, count, sent, phase] = [clock(), 0, 0, sent + 1, 0];
  }
  if (clock() < Number(seconds) || count) return;
  clearInterval(timer);
  console.log(`done: ${sent} messages at ${rateNow()} a second`);
  mq.end();
}, 50);
