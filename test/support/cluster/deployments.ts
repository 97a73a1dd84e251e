/** Deployments of tests. */
import { PROTECT_LABEL } from "../../../shared/schema/annotations.ts";

/** Labels of an object that the generator protects. */
export const PROTECTED = { [PROTECT_LABEL]: "true" };

interface DeploymentOptions {
  readonly namespace?: string;
  /** By default the Deployment is protected. */
  readonly labels?: object;
  readonly annotations?: object;
  readonly finalizers?: readonly string[];
  /** More fields, such as the strategy. */
  readonly spec?: object;
  readonly podAnnotations?: object;
  readonly podSpec?: object;
}

/** Of pods with the label `app: NAME`. */
export function deployment(name: string, replicas: number, options: DeploymentOptions = {}) {
  const { namespace = "default", labels = PROTECTED, annotations, finalizers, ...more } = options;
  const app = { app: name };
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name, namespace, labels, annotations, finalizers },
    spec: {
      ...{ replicas, selector: { matchLabels: app }, ...more.spec },
      template: {
        metadata: { labels: app, annotations: more.podAnnotations },
        spec: { containers: [{ name: "app", image: "app:1" }], ...more.podSpec },
      },
    },
  };
}
