/**
 * Who may ask the webhook: the shipped process beside a real kube-apiserver, whose published keys verify the identity
 * tokens (KEP-6060). Kubernetes 1.36 does not send them yet, so the test signs them with the apiserver's own key.
 */
import { createPrivateKey, type KeyObject } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:https";
import { join } from "node:path";
import { type JWTPayload, SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { field } from "../../scripts/control-plane/api-client.ts";
import { TestEnvironment } from "../../scripts/environment/environment.ts";
import { PUBLISHED_CONFIG_MAP, PUBLISHED_KEY, pathSegment } from "../../shared/certificates/ca-bundle.ts";
import { createCertificateAuthority, type KeyAndCertificate } from "../../shared/certificates/x509.ts";

const PATH = "/webhook/cell";
const SUBJECT = "system:serviceaccount:kube-system:webhook-auth";
const REVIEW = JSON.stringify({
  apiVersion: "admission.k8s.io/v1",
  kind: "AdmissionReview",
  request: {
    uid: "1",
    operation: "DELETE",
    kind: { group: "", version: "v1", kind: "Pod" },
    resource: { group: "", version: "v1", resource: "pods" },
    namespace: "default",
    name: "unprotected",
    userInfo: { username: "someone" },
    oldObject: { metadata: { name: "unprotected", namespace: "default", uid: "1", resourceVersion: "1" } },
  },
});

let environment: TestEnvironment;
let url = "";
let caPem = "";
let key: KeyObject;

interface Call {
  readonly token?: string;
  readonly client?: KeyAndCertificate;
}

beforeAll(async () => {
  environment = await TestEnvironment.start({
    ...{ cells: ["cell"], single: true, replicas: 1, aggregators: false },
    aggregatorArgs: ["--ca-cluster", "cell", "--ca-interval", "100ms", "--secret-path"],
  });
  key = createPrivateKey(readFileSync(join(environment.core.identity.directory, "service-account.key")));
});

afterAll(() => environment?.stop());

async function restart(...args: string[]): Promise<void> {
  await environment.replaceWebhooks(["webhook"], args);
  const [replica] = environment.webhooks;
  url = replica?.url ?? "";
  caPem = replica?.caPem ?? "";
}

/** The status of the response, or why there is none. */
function ask({ token, client }: Call, path = PATH): Promise<number | string> {
  return new Promise((resolve) => {
    const sending = request(`${url}${path}`, {
      method: "POST",
      ca: caPem,
      agent: new Agent({ keepAlive: false }),
      headers: {
        "content-type": "application/json",
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
      ...(client === undefined ? {} : { cert: client.certificatePem, key: client.privateKeyPem }),
    });
    sending.on("response", (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    sending.on("error", () => resolve("no connection"));
    sending.end(REVIEW);
  });
}

function claims(changes: JWTPayload = {}): JWTPayload {
  return {
    iss: "https://kubernetes.default.svc.cluster.local",
    sub: SUBJECT,
    aud: `${url}${PATH}`,
    exp: Math.floor(Date.now() / 1000) + 600,
    "kubernetes.io": { validatingWebhookConfiguration: { name: "podseidon", uid: "1" } },
    ...changes,
  };
}

/** Signed as the apiserver signs: the key's id is that of its published keys. */
async function signed(payload: JWTPayload, by: KeyObject = key): Promise<string> {
  const { keys } = JSON.parse((await environment.core.kubectl(["get", "--raw", "/openid/v1/jwks"])).stdout);
  return await new SignJWT(payload).setProtectedHeader({ alg: "ES256", kid: keys[0].kid }).sign(by);
}

async function foreignKey(): Promise<KeyObject> {
  const validity = { notBeforeMs: Date.now() - 60_000, notAfterMs: Date.now() + 3_600_000 };
  return createPrivateKey((await createCertificateAuthority({ commonName: "other", ...validity })).privateKeyPem);
}

describe("identity tokens", () => {
  const lies: Record<string, () => Promise<string>> = {
    "signed by another key": async () => signed(claims(), await foreignKey()),
    "that has expired": () => signed(claims({ exp: Math.floor(Date.now() / 1000) - 60 })),
    "for another path": () => signed(claims({ aud: `${url}/webhook/other` })),
    "for another host": () => signed(claims({ aud: `https://elsewhere.default.svc${PATH}` })),
    "of another account": () => signed(claims({ sub: "system:serviceaccount:default:default" })),
    "for an APIService only": () =>
      signed(claims({ "kubernetes.io": { apiService: { name: "v1.x" }, validatingWebhookConfiguration: undefined } })),
  };

  it("are verified where a caller presents one", async () => {
    await restart();
    expect(await ask({})).toBe(200);
    expect(await ask({ token: await signed(claims()) })).toBe(200);
    expect(await ask({ token: await signed(claims(), await foreignKey()) })).toBe(401);
    // A token that an operator's admission configuration sends to every webhook.
    expect(await ask({ token: await environment.core.serviceAccountToken("podseidon-system", "default") })).toBe(200);
  });

  it("are required where the operator says so", async () => {
    await restart("--require-caller-token");
    expect(await ask({})).toBe(401);
    expect(await ask({ token: await environment.core.serviceAccountToken("podseidon-system", "default") })).toBe(401);
    for (const [what, token] of Object.entries(lies)) expect(await ask({ token: await token() }), what).toBe(401);
    const token = await signed(claims());
    expect([await ask({ token }), await ask({ token })]).toEqual([200, 200]);
    expect(await ask({ token }, `${PATH}/mutate`)).toBe(401);
  });
});

describe("client certificates", () => {
  it("are accepted by name, and not for their authority alone", async () => {
    const { identity } = environment.core;
    const authority = ["--client-ca-file", identity.certificateAuthorityFile];
    const [apiserver, other] = [await identity.clientCertificate("apiserver"), await identity.clientCertificate("web")];
    await restart(...authority);
    expect([await ask({ client: apiserver }), await ask({ client: other })]).toEqual([200, 200]);
    expect(await ask({})).toBe("no connection");
    await restart(...authority, "--client-name", "apiserver");
    expect([await ask({ client: apiserver }), await ask({ client: other })]).toEqual([200, 403]);
  });
});

describe("a secret path", () => {
  const configuration = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/podseidon";
  const published = `/api/v1/namespaces/podseidon-system/configmaps/${PUBLISHED_CONFIG_MAP}`;
  const pathOf = (pem: string): string => `/~${pathSegment(pem)}${PATH}`;

  /** Resolves once the cell's webhook configuration has the path that belongs to this authority. */
  async function untilAskedAt(pem: string): Promise<void> {
    await environment.core.waitFor("the path", async () => {
      const address = field(await environment.core.admin.get(configuration), "webhooks", 0, "clientConfig", "url");
      return String(address).endsWith(pathOf(pem));
    });
  }

  /** The webhook refuses the eviction of a pod that is not there, in its own name. */
  async function untilApiserverIsAnswered(): Promise<void> {
    const metadata = { name: "absent", namespace: "default" };
    const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata };
    const path = "/api/v1/namespaces/default/pods/absent/eviction?dryRun=All";
    await environment.core.waitFor("the apiserver to be answered", async () => {
      const { status, text } = await environment.core.admin.request("POST", path, eviction);
      return status === 404 && text.includes("admission webhook");
    });
  }

  it("is kept by the aggregator, needed by every caller, and rotates with the CA", async () => {
    const { certificateAuthorityPem: served, directory } = environment.core.identity;
    const validity = { notBeforeMs: Date.now() - 60_000, notAfterMs: Date.now() + 3_600_000 };
    const { certificatePem: earlier } = await createCertificateAuthority({ commonName: "earlier", ...validity });
    const file = join(directory, "published.crt");
    writeFileSync(file, earlier + served);
    await restart("--secret-path-file", file);
    expect(await ask({})).toBe(404);

    const metadata = { name: PUBLISHED_CONFIG_MAP, namespace: "podseidon-system" };
    const data = { [PUBLISHED_KEY]: earlier + served };
    await environment.core.apply([{ apiVersion: "v1", kind: "ConfigMap", metadata, data }]);
    await environment.startAggregator("cell");
    await untilAskedAt(earlier);
    await untilApiserverIsAnswered();
    expect(await ask({}, pathOf(earlier))).toBe(200);
    expect([await ask({}), await ask({}, `/~guess${PATH}`), await ask({}, `/~${PATH}`)]).toEqual([404, 404, 404]);

    await environment.core.admin.call("PATCH", published, { data: { [PUBLISHED_KEY]: served } });
    writeFileSync(file, served);
    await untilAskedAt(served);
    await untilApiserverIsAnswered();
    // While cells may be late, both are good.
    expect([await ask({}, pathOf(earlier)), await ask({}, pathOf(served))]).toEqual([200, 200]);
    await restart("--secret-path-file", file);
    expect([await ask({}, pathOf(earlier)), await ask({}, pathOf(served))]).toEqual([404, 200]);
  });
});
