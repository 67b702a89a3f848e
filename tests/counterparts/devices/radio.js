// zigbee2mqtt with its radio replaced: a coordinator and one lamp that does what ZCL frames tell it. Loaded before it.
const path = require("node:path");

const herdsman = path.join(process.env.Z2M_MODULES, "zigbee-herdsman", "dist");
const { Adapter } = require(path.join(herdsman, "adapter", "adapter.js"));
const Zcl = require(path.join(herdsman, "zspec", "zcl"));

const LAMP = { ieee: "0x000b57fffec6a5b2", address: 40369 };
const state = { genOnOff: { onOff: 0 }, genLevelCtrl: { currentLevel: 254 } };

class Radio extends Adapter {
  sequence = 0;

  async start() { return "resumed"; }
  async stop() {}
  async getCoordinatorIEEE() { return "0x00124b00120144ae"; }
  async getCoordinatorVersion() { return { type: "none", meta: { revision: 1 } }; }
  async supportsBackup() { return false; }
  async getNetworkParameters() { return { panID: 6754, extendedPanID: "0xdddddddddddddddd", channel: 11, nwkUpdateID: 0 }; }
  async permitJoin() {}
  async sendZdo() { return [0, {}]; }
  async sendZclFrameToAll() {}
  async sendZclFrameToGroup() {}
  waitFor() { return { promise: new Promise(() => {}), cancel() {} }; }

  async sendZclFrameToEndpoint(_ieee, _address, endpoint, frame) {
    const cluster = frame.cluster.name;
    const command = frame.command.name;
    if (cluster === "genOnOff") {
      if (command === "on") state.genOnOff.onOff = 1;
      if (command === "off") state.genOnOff.onOff = 0;
      if (command === "toggle") state.genOnOff.onOff ^= 1;
    }
    if (frame.payload.level !== undefined) {
      state.genLevelCtrl.currentLevel = frame.payload.level;
      state.genOnOff.onOff = frame.payload.level > 0 ? 1 : 0;
    }
    return command === "read" ? this.told(endpoint, frame) : this.done(endpoint, frame);
  }

  told(endpoint, frame) {
    const records = frame.payload.map(({ attrId }) => {
      const [name, attribute] = Object.entries(frame.cluster.attributes).find(([, one]) => one.ID === attrId);
      const value = state[frame.cluster.name]?.[name];
      return value === undefined
        ? { attrId, status: Zcl.Status.UNSUPPORTED_ATTRIBUTE }
        : { attrId, status: 0, dataType: attribute.type, attrData: value };
    });
    return this.answer(endpoint, frame, "readRsp", records);
  }

  done(endpoint, frame) {
    return this.answer(endpoint, frame, "defaultRsp", { cmdId: frame.command.ID, statusCode: 0 });
  }

  answer(endpoint, frame, command, payload) {
    const said = Zcl.Frame.create(
      Zcl.FrameType.GLOBAL, Zcl.Direction.SERVER_TO_CLIENT, true, undefined,
      frame.header.transactionSequenceNumber, command, frame.cluster.ID, payload, {},
    );
    const message = {
      clusterID: frame.cluster.ID, header: said.header, data: said.toBuffer(), address: LAMP.address,
      endpoint, linkquality: 90, groupID: 0, wasBroadcast: false, destinationEndpoint: 1,
    };
    setImmediate(() => this.emit("zclPayload", message));
    return message;
  }
}

Adapter.create = async (...options) => new Radio(...options);
