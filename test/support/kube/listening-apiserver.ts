import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Where `answer` serves, for a command that reads a kubeconfig. */
export interface ListeningApiserver {
  /** The path of a file. */
  readonly kubeconfig: string;
  readonly close: () => void;
}

/** `namespace`: of the kubeconfig's context, which has this name, and this user. */
export async function listeningApiserver(
  answer: RequestListener,
  namespace?: string,
  context = "c",
  user: object = {},
): Promise<ListeningApiserver> {
  const server = createServer(answer).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const directory = mkdtempSync(join(tmpdir(), "podseidon-apiserver-"));
  const kubeconfig = join(directory, "kubeconfig");
  const config = {
    "current-context": context,
    contexts: [{ name: context, context: { cluster: "c", user: "u", namespace } }],
    clusters: [{ name: "c", cluster: { server: `http://127.0.0.1:${port}` } }],
    users: [{ name: "u", user }],
  };
  writeFileSync(kubeconfig, JSON.stringify(config));
  const close = (): void => {
    rmSync(directory, { recursive: true });
    server.close();
  };
  return { kubeconfig, close };
}
