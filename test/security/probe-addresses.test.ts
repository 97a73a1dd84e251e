/** Where a protector can make the webhook call, and what its texts tell of a probe's URL. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { AttackedWebhook, webPod } from "./attacked-webhook.ts";

const DELETION = { name: "web-0", oldObject: webPod("web-0") };

test("a probe reaches no address that the operator does not allow, and no text has its URL", async () => {
  const asked: string[] = [];
  const internal = createServer((request, response) => {
    asked.push(request.headers.authorization ?? "");
    response.writeHead(403).end();
  });
  await new Promise<void>((resolve) => internal.listen(0, "127.0.0.1", resolve));
  const { port } = internal.address() as AddressInfo;
  const counts = { availableReplicas: 9 };
  try {
    for (const user of ["", "admin:hunter2@"]) {
      const endpoint = `http://${user}127.0.0.1:${port}/latest/secret-path`;
      await using webhook = await AttackedWebhook.start({ counts, spec: { probe: { endpoint, protocol: "HTTP" } } });
      const answer = await webhook.ask(DELETION);
      expect(asked).toEqual([]);
      expect(answer).toMatch(/"code":429.*has a probe that can't be asked/s);
      await expect.poll(() => webhook.bodies("POST", /\/events$/).length).toBeGreaterThan(0);
      const told = [answer, ...webhook.bodies("POST", /\/events$/), webhook.logTail()].join("\n");
      expect(told).not.toMatch(/hunter2|secret-path/);
    }
  } finally {
    internal.close();
  }
});
