import { expect, test } from "vitest";
import { type Transport, TransportError } from "../../../shared/kube/client/transport.ts";
import { ClusterClient } from "./cluster.ts";

test("a list of objects too large for one response is read in small pages, from where it stood", async () => {
  const asked: string[] = [];
  const transport: Transport = {
    async request({ path }) {
      const query = new URLSearchParams(path.split("?")[1]);
      const [from, limit] = [Number(query.get("continue") ?? 0), Number(query.get("limit"))];
      asked.push(`${from}+${limit}`);
      if (from === 500 && limit > 6) throw new TransportError("oversized", true, "too large");
      const end = Math.min(from + limit, 509);
      const metadata = { resourceVersion: "1", ...(end < 509 ? { continue: String(end) } : {}) };
      const items = Array.from({ length: end - from }, (_, index) => from + index);
      return { status: 200, headers: {}, body: JSON.stringify({ metadata, items }) };
    },
    stream: () => Promise.reject(new Error("unused")),
    close: () => undefined,
  };
  const access = { server: "https://api", namespace: undefined, credentials: undefined };
  const client = new ClusterClient("core", access as never, transport);
  expect(await client.list("/api/v1/pods")).toHaveLength(509);
  expect(asked).toEqual(["0+500", "500+500", "500+6", "506+6"]);
});
