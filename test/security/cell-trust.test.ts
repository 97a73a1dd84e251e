/**
 * One webhook in the core for all clusters (`components/central-webhook`): the aggregator of each cell, with its own
 * account, says there which CA its cell trusts. A new CA signs only when all cells have said so.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { type ApiserverClient, field } from "../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { applyOverlay } from "../../scripts/demo/install.ts";
import { asAccount, createCellAccounts } from "../../scripts/environment/cell-accounts.ts";

const TRUSTED = "/api/v1/namespaces/podseidon-system/configmaps/podseidon-webhook-ca-cells";
const TRUST_OF_B = "b".repeat(64);
let core: Cluster;
let aggregator: ApiserverClient;

beforeAll(async () => {
  core = await Cluster.start(BARE);
  await applyOverlay(core, "core", { components: ["central-webhook"] });
  await createCellAccounts(core, "a");
  await core.admin.call("PATCH", TRUSTED, { data: { b: TRUST_OF_B } });
  aggregator = await asAccount(core, "aggregator.a");
  await core.waitFor("the policy to be in force", async () => {
    const answer = await aggregator.request("PATCH", `${TRUSTED}?dryRun=All`, { data: { b: "c".repeat(64) } });
    return answer.text.includes("ValidatingAdmissionPolicy");
  });
});

afterAll(async () => {
  aggregator?.close();
  await core?.stop();
});

test("the aggregator of a cell says what its cell trusts", async () => {
  const own = "a".repeat(64);
  const answer = await aggregator.request("PATCH", TRUSTED, { data: { a: own } });
  expect(answer.text).toContain(own);
  expect(answer.status).toBe(200);
});

test.each<[string, unknown, string]>([
  [
    "what another cell trusts",
    { data: { b: "c".repeat(64) } },
    "may change no key of podseidon-webhook-ca-cells but a",
  ],
  [
    "that another cell trusts nothing yet",
    { data: { b: null } },
    "may change no key of podseidon-webhook-ca-cells but a",
  ],
  ["anything but a fingerprint", { data: { a: "x".repeat(64) } }, "which matches ^[0-9a-f]{64}$"],
  ["more than data", { metadata: { labels: { any: "label" } } }, "may change nothing but data"],
])("it does not say %s", async (_, patch, message) => {
  const answer = await aggregator.request("PATCH", TRUSTED, patch);
  expect(answer.text).toContain(message);
  expect(answer.status).toBe(403);
  expect(field(await core.admin.get(TRUSTED), "data", "b")).toBe(TRUST_OF_B);
});
