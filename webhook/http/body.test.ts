import { Socket } from "node:net";
import { expect, test, vi } from "vitest";
import { type Body, ReceivedRequest, readBody } from "./body.ts";
import { InFlightLimiter } from "./in-flight-limiter.ts";
import { MAX_REQUEST_BYTES, MAX_SINGLE_OBJECT_BYTES } from "./limits.ts";

test("small chunks at the end of a large body are not each compared with its beginning", () => {
  const incoming = new ReceivedRequest(new Socket());
  let received: Body | undefined;
  const limiter = new InFlightLimiter({ requests: 1, bytes: 2 * MAX_REQUEST_BYTES, values: 100 });
  readBody(incoming, limiter, MAX_REQUEST_BYTES, (body) => {
    received = body;
  });
  const concat = vi.spyOn(Buffer, "concat");
  incoming.emit(
    "data",
    Buffer.from(`{"request":{"operation":"UPDATE","object":"${"x".repeat(MAX_SINGLE_OBJECT_BYTES)}`),
  );
  for (let count = 0; count < 100; count++) incoming.emit("data", Buffer.from("x"));
  const compared = concat.mock.calls.length;
  concat.mockRestore();
  expect(compared).toBe(1);
  incoming.emit("end");
  expect(received).toMatchObject({ isLarge: true });
});
