import { MAX_UNAVAILABLE_ANNOTATION } from "../../schema/annotations.ts";

/**
 * What makes room where as many pods are promised as there are. More replicas are no remedy: up to three of a
 * Deployment with the default strategy promise all of them, because a quarter is rounded down. The generator undoes an
 * edit of a protector that it made.
 */
export const PROMISE_LESS =
  "promise less: in the budget or PodProtector that people wrote, else annotate the workload with " +
  `${MAX_UNAVAILABLE_ANNOTATION}=1`;
