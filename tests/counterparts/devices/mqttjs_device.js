// A Shelly of the second generation, and a device of MQTT 5 request and response, on MQTT.js.
const mqtt = require("mqtt");

const [host, port] = process.argv.slice(2);
const client = mqtt.connect(`mqtt://${host}:${port}`, { protocolVersion: 5, clientId: "js-1" });

client.on("connect", () => client.subscribe(["js-1/rpc", "js-1/request/+"], { qos: 1 }));

client.on("message", (topic, payload, packet) => {
  const asked = JSON.parse(payload.toString());
  if (topic === "js-1/rpc") {
    const said = { id: asked.id, src: "js-1", dst: asked.src };
    if (asked.method === "Switch.Set") said.result = { was_on: false };
    else said.error = { code: 404, message: `No handler for ${asked.method}` };
    client.publish(`${asked.src}/rpc`, JSON.stringify(said), { qos: 1 });
    return;
  }
  const { responseTopic, correlationData } = packet.properties;
  client.publish(responseTopic, JSON.stringify({ asked }), { qos: 1, properties: { correlationData } });
});
