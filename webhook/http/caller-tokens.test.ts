/** What a real apiserver's keys say is in `test/security/callers.test.ts`; here are clocks, and keys out of reach. */
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import { expect, test } from "vitest";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { CallerTokens } from "./caller-tokens.ts";

const PATH = "/webhook/cell";
const { publicKey, privateKey } = await generateKeyPair("ES256");
const published = JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid: "1", alg: "ES256" }] });

/** The apiserver that issues the tokens; its clock is ahead of the webhook's by `aheadS`. */
function harness() {
  const time = new VirtualTime();
  const cell = { status: 200, reads: 0 };
  const transport = {
    request: async () => {
      cell.reads++;
      return { status: cell.status, headers: {}, body: published };
    },
    stream: () => Promise.reject(new Error("no streams")),
    close: () => undefined,
  };
  const cells = [{ name: "cell", transport }];
  const tokens = new CallerTokens({ cells, ports: time, isRequired: true, servesHost: () => true });
  const token = (aheadS = 0, kid = "1"): Promise<string> => {
    const nowS = Math.floor(time.clock.nowMs() / 1000) + aheadS;
    return new SignJWT({
      sub: "system:serviceaccount:kube-system:webhook-auth",
      aud: `https://podseidon-webhook.podseidon-system.svc:443${PATH}`,
      ...{ iat: nowS, nbf: nowS, exp: nowS + 600 },
      "kubernetes.io": { validatingWebhookConfiguration: { name: "podseidon", uid: "1" } },
    })
      .setProtectedHeader({ alg: "ES256", kid })
      .sign(privateKey);
  };
  const ask = async (text: string): Promise<number> => {
    const rejection = await tokens.check({ cell: "cell", path: PATH, authorization: `Bearer ${text}` });
    return rejection?.status ?? 200;
  };
  return { time, cell, token, ask };
}

test("a new token is accepted where the apiserver's clock is a little ahead, and only a little", async () => {
  const { token, ask } = harness();
  expect(await ask(await token())).toBe(200);
  expect(await ask(await token(1))).toBe(200);
  expect(await ask(await token(59))).toBe(200);
  expect(await ask(await token(90))).toBe(401);
});

test("an expired token is accepted no longer than clocks may differ", async () => {
  const { time, token, ask } = harness();
  const text = await token();
  expect(await ask(text)).toBe(200);
  await time.advance(620_000);
  expect(await ask(text)).toBe(200);
  await time.advance(60_000);
  expect(await ask(text)).toBe(401);
});

test("keys that can't be read are asked for rarely, whoever calls how often", async () => {
  const { time, cell, token, ask } = harness();
  cell.status = 503;
  const forged = await token(0, "forged");
  for (let call = 0; call < 20; call++) expect(await ask(forged)).toBe(401);
  expect(cell.reads).toBeLessThanOrEqual(2);
  cell.status = 200;
  await time.advance(1_000);
  expect(await ask(await token())).toBe(200);
  cell.status = 503;
  cell.reads = 0;
  await time.advance(30_000);
  await Promise.all(Array.from({ length: 20 }, () => ask(forged)));
  expect(cell.reads).toBeLessThanOrEqual(1);
  expect(await ask(await token())).toBe(200);
});
