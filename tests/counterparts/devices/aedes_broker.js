// Aedes as a broker on a port of this machine.
const net = require("net");
const { Aedes } = require("aedes");

Aedes.createBroker().then((broker) => net.createServer(broker.handle).listen(Number(process.argv[2]), "127.0.0.1"));
