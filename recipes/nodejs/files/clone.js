// What a Node process must renew if it was started before the snapshot. A server calls
//   require('/usr/local/lib/forkd/node/clone').renew()
// at the start of each request; in all but the first after a fork this reads one small file.
'use strict';
const crypto = require('crypto');
const fs = require('fs');

// A clone has a boot id of its own.
const bootID = () => fs.readFileSync('/proc/sys/kernel/random/boot_id', 'latin1');
let boot = bootID();

// V8 seeds Math.random once per process, and has no function to do it again: this takes its place in a clone.
function generator() {
  const words = new Uint32Array(1024);
  let used = words.length;
  return () => {
    if (used === words.length) {
      crypto.randomFillSync(words);
      used = 0;
    }
    used += 2;
    return ((words[used - 2] >>> 5) * 2 ** 26 + (words[used - 1] >>> 6)) / 2 ** 53;
  };
}

// Reports whether this process is a clone since the last call.
exports.renew = () => {
  const now = bootID();
  if (now === boot) return false;
  boot = now;
  process.dlopen({ exports: {} }, '/usr/local/lib/forkd/node/reseed.node');
  // Node keeps numbers for these two in memory. Draw as many as it can have.
  for (let i = 0; i < 128; i++) crypto.randomUUID();
  for (let i = 0; i < 1024; i++) crypto.randomInt(2);
  Math.random = generator();
  return true;
};
