// Sends each payload to an HTTP API, and tries again later while the API is busy or broken.
//
//   windlass run examples/call_api.js --env API=https://api.example/orders --payload '{"item": 7}'
//
// Handlers reach public addresses only. For an API on this machine or in a private network, its address
// must be in the daemon's configuration: isolation.network.allow = ["127.0.0.1:8080"].
//
// windlass: timeout=30s retry.delay=500ms retry.factor=3 retry.attempts=5
// windlass: env.API=https://api.example/orders
const answer = await fetch(process.env.API, {
  method: 'POST',
  // The same in every attempt, so that the API can tell a repetition from a second order.
  headers: { 'content-type': 'application/json', 'idempotency-key': job.id },
  body: payload,
  signal: AbortSignal.timeout(10_000),
});
const text = await answer.text();
console.log(`attempt ${job.attempt}: the API answered ${answer.status}`);

// 1xx and 5xx run again after the delay, 2xx and 4xx end the job. "Too many requests" would be an
// end, but it only means later. No answer at all is an exception, which counts as 500.
const status = answer.status === 429 ? 100 : answer.status;
return { status, data: text };
