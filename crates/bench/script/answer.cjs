'use strict';
// Answers each line that comes in with a short one: as it is read, or all lines of one read together.
const { readSync, writeSync } = require('node:fs');

const together = process.argv[1] === 'together';
const buffer = Buffer.allocUnsafe(65536);
for (let length; (length = readSync(0, buffer, 0, buffer.length, null)) > 0; ) {
  const read = buffer.subarray(0, length);
  let answers = '';
  for (let at = 0; (at = read.indexOf(10, at) + 1) > 0; ) {
    if (together) answers += '200\n';
    else writeSync(1, '200\n');
  }
  if (together) writeSync(1, answers);
}
