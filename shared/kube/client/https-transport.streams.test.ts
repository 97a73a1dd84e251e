import { once } from "node:events";
import { describe, expect, test } from "vitest";
import { failure, GET, startServer } from "../../../test/support/kube/https-server.ts";

describe("stream", () => {
  async function collect(chunks: AsyncIterable<Uint8Array>): Promise<string> {
    const decoder = new TextDecoder();
    let text = "";
    for await (const chunk of chunks) text += decoder.decode(chunk, { stream: true });
    return text;
  }

  test("delivers the body as it arrives, and reuses the connection after its end", async () => {
    const it = await startServer((_, response) => {
      response.write("one\n");
      setImmediate(() => response.end("two\n"));
    });
    for (let i = 0; i < 3; i++) {
      const stream = await it.transport.stream(GET);
      expect(await collect(stream.chunks)).toBe("one\ntwo\n");
      stream.close();
    }
    expect(it.sockets.size).toBe(1);
  });

  test("silence beyond the limit ends the stream; a slow consumer does not", async () => {
    let speak = (): void => {};
    const it = await startServer((_, response) => {
      response.write("one\n");
      speak = () => response.write("two\n");
    });
    const stream = await it.transport.stream({ ...GET, timeoutMs: 1000 });
    const chunks = stream.chunks[Symbol.asyncIterator]();
    await chunks.next();
    await new Promise((resolve) => setTimeout(resolve, 1500));
    const next = chunks.next();
    speak();
    expect(Buffer.from((await next).value ?? []).toString()).toBe("two\n");
    expect(await failure(chunks.next())).toMatchObject({ tag: "timeout", sent: true });
  });

  test("a cut connection ends the stream with an error, unlike the server's end", async () => {
    const it = await startServer((request, response) => response.write("one\n", () => request.socket.destroy()));
    const stream = await it.transport.stream(GET);
    expect(await failure(collect(stream.chunks))).toMatchObject({ tag: "reset" });
  });

  test("an abort ends the stream, with and without a reader", async () => {
    const it = await startServer((_, response) => response.write("one\n"));
    const controller = new AbortController();
    const stream = await it.transport.stream({ ...GET, signal: controller.signal });
    const reading = failure(collect(stream.chunks));
    controller.abort();
    expect((await reading).tag).toBe("aborted");
  });

  test("close releases the connection, and is idempotent", async () => {
    const it = await startServer((_, response) => response.write("one\n"));
    const stream = await it.transport.stream(GET);
    const [socket] = it.sockets;
    if (socket === undefined) throw new Error("no connection");
    const closed = once(socket, "close");
    stream.close();
    stream.close();
    await closed;
  });

  test("a reader that stops reading slows the server", async () => {
    let written = 0;
    const it = await startServer((_, response) => {
      const fill = (): void => {
        while (response.write("x".repeat(65536))) written += 65536;
        response.once("drain", fill);
      };
      fill();
    });
    const stream = await it.transport.stream(GET);
    const chunks = stream.chunks[Symbol.asyncIterator]();
    await chunks.next();
    let before = -1;
    while (before !== written) {
      before = written;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    expect(written).toBeLessThan(64 * 1024 * 1024);
    stream.close();
  });

  test("one that is moved takes a new connection, and the next one keeps it", async () => {
    const used: unknown[] = [];
    const it = await startServer((request, response) => {
      used.push(request.socket);
      response.end("one\n");
    });
    for (const isMoved of [false, false, true, false])
      await collect((await it.transport.stream({ ...GET, isMoved })).chunks);
    const [first, second, third, fourth] = used;
    expect([second === first, third === first, fourth === third]).toEqual([true, false, true]);
  });
});
