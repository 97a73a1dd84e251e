// loadgen drives PodProtector admission webhooks as kube-apiserver does; see README.md.
package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	api         = flag.String("api", "", "URL of the core apiserver")
	token       = flag.String("token", "", "token for the core apiserver")
	urls        = flag.String("urls", "", "comma-separated webhook URLs, used in turn")
	mode        = flag.String("mode", "hot", "hot: one protector; wide: one protector for each pod; none: no protector matches")
	count       = flag.Int("n", 1000, "admission requests")
	concurrency = flag.Int("c", 100, "admission requests in flight")
	minimum     = flag.Int("min", 0, "minAvailable of the protector in mode hot")
	namespace   = flag.String("ns", "default", "namespace of pods and protectors")
	timeout     = flag.Int("timeout", 10, "timeoutSeconds of the webhook configuration")
	setup       = flag.Bool("setup", true, "create the protectors")
	settle      = flag.Duration("settle", 3*time.Second, "wait after the protectors are created")
	compact     = flag.Int("compact", 100, "compactThreshold of the protectors")
	run         = flag.String("tag", strconv.FormatInt(time.Now().UnixNano(), 36), "name of this run, part of all object names")
	extra       = flag.String("extra", "{}", "more fields of the stored aggregation, as JSON")
)

type object = map[string]any

// HTTP/1.1 only, as kube-apiserver calls webhooks by default.
var client = &http.Client{
	Timeout: 35 * time.Second,
	Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}},
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		MaxIdleConnsPerHost: 1000,
	},
}

// call sends one request to the core apiserver and ends the program unless the answer has the wanted status.
func call(method, path string, body, into any, want int) []byte {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		check(err)
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequest(method, *api+path, content)
	check(err)
	request.Header.Set("Authorization", "Bearer "+*token)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	check(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(err)
	if response.StatusCode != want {
		log.Fatalf("%s %s: %d %.500s", method, path, response.StatusCode, text)
	}
	if into != nil {
		check(json.Unmarshal(text, into))
	}
	return text
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// createProtector creates a protector of one cell in which `available` pods are counted.
func createProtector(name, app string, min, available int) {
	path := "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/" + *namespace + "/podprotectors"
	var stored object
	call("POST", path, object{
		"apiVersion": "podseidon.kubewharf.io/v1alpha1", "kind": "PodProtector",
		"metadata": object{"name": name, "namespace": *namespace, "labels": object{"bench": *run}},
		"spec": object{
			"minAvailable": min, "minReadySeconds": 0, "selector": object{"matchLabels": object{"app": app}},
			"admissionHistoryConfig": object{"compactThreshold": *compact},
		},
	}, &stored, 201)
	aggregation := object{
		"totalReplicas": available, "availableReplicas": available, "readyReplicas": available, "scheduledReplicas": available,
		"runningReplicas": available, "lastEventTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
	}
	check(json.Unmarshal([]byte(*extra), &aggregation))
	stored["status"] = object{
		"cells": []object{{"cellID": "cell", "aggregation": aggregation, "admissionHistory": object{"buckets": []object{}}}},
		"summary": object{
			"totalReplicas": available, "aggregatedAvailableReplicas": available, "aggregatedReadyReplicas": available,
			"aggregatedScheduledReplicas": available, "aggregatedRunningReplicas": available,
			"estimatedAvailableReplicas": available, "maxLatencyMillis": 0,
		},
	}
	call("PUT", path+"/"+name+"/status", stored, nil, 200)
}

func createProtectors(appOf func(int) string) {
	switch *mode {
	case "hot":
		createProtector("bench-"+*run, *run, *minimum, *count)
	case "wide":
		var group sync.WaitGroup
		slots := make(chan struct{}, 20)
		for index := 0; index < *count; index++ {
			group.Add(1)
			slots <- struct{}{}
			go func() {
				createProtector(fmt.Sprintf("bench-%s-%d", *run, index), appOf(index), 0, 2)
				<-slots
				group.Done()
			}()
		}
		group.Wait()
	}
	time.Sleep(*settle)
}

// review is an AdmissionReview about the deletion of a Ready pod, with the fields that kube-apiserver sends.
func review(index int, app string) []byte {
	uid, name := fmt.Sprintf("%s-%08d-pod", *run, index), fmt.Sprintf("web-%s-%d", *run, index)
	since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	conditions := []object{}
	for _, kind := range []string{"Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		conditions = append(conditions, object{"type": kind, "status": "True", "lastTransitionTime": since, "lastProbeTime": nil})
	}
	env := []object{}
	for variable := 0; variable < 20; variable++ {
		env = append(env, object{"name": fmt.Sprintf("VARIABLE_%d", variable), "value": strings.Repeat("x", 60)})
	}
	pod := object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{
			"name": name, "namespace": *namespace, "uid": uid, "resourceVersion": "1000", "creationTimestamp": since,
			"labels": object{"app": app, "pod-template-hash": "abc"},
			"managedFields": []object{{
				"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": since, "fieldsType": "FieldsV1",
				"fieldsV1": object{"f:metadata": object{"f:labels": object{".": object{}, "f:app": object{}}}},
			}},
		},
		"spec": object{
			"nodeName": "node-0", "schedulerName": "default-scheduler",
			"containers": []object{{"name": "c", "image": "nginx:1", "env": env, "resources": object{}}},
		},
		"status": object{
			"phase": "Running", "startTime": since, "conditions": conditions,
			"containerStatuses": []object{{
				"name": "c", "ready": true, "started": true, "restartCount": 0, "image": "nginx:1", "imageID": "",
				"state": object{"running": object{"startedAt": since}},
			}},
		},
	}
	kind := object{"group": "", "version": "v1", "kind": "Pod"}
	resource := object{"group": "", "version": "v1", "resource": "pods"}
	text, err := json.Marshal(object{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"request": object{
			"uid": "r-" + uid, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
			"name": name, "namespace": *namespace, "operation": "DELETE", "userInfo": object{"username": "bench"},
			"object": nil, "oldObject": pod, "dryRun": false,
			"options": object{"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": "Background"},
		},
	})
	check(err)
	return text
}

var (
	requestTotal = regexp.MustCompile(`(?m)^apiserver_request_total\{([^}]*resource="podprotectors"[^}]*)\} (\S+)`)
	codeLabel    = regexp.MustCompile(`code="(\d+)"`)
	verbLabel    = regexp.MustCompile(`verb="(\w+)"`)
)

// statusWrites is how many calls to /status of protectors the core apiserver has counted, by verb and code ("PUT 200").
func statusWrites() map[string]float64 {
	found := map[string]float64{}
	for _, match := range requestTotal.FindAllSubmatch(call("GET", "/metrics", nil, nil, 200), -1) {
		labels := string(match[1])
		if !strings.Contains(labels, `subresource="status"`) {
			continue
		}
		value, err := strconv.ParseFloat(string(match[2]), 64)
		check(err)
		found[verbLabel.FindStringSubmatch(labels)[1]+" "+codeLabel.FindStringSubmatch(labels)[1]] += value
	}
	return found
}

// send posts one AdmissionReview and returns the verdict ("allowed", "refused 429", "http 500", "error") and what was said.
func send(url string, body []byte) (verdict, message string) {
	response, err := client.Post(fmt.Sprintf("%s?timeout=%ds", url, *timeout), "application/json", bytes.NewReader(body))
	if err != nil {
		return "error", err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "error", err.Error()
	}
	var answer struct {
		Response struct {
			Allowed bool
			Status  struct {
				Code    int
				Message string
			}
		}
	}
	switch {
	case response.StatusCode != 200 || json.Unmarshal(text, &answer) != nil:
		return fmt.Sprintf("http %d", response.StatusCode), string(text)
	case answer.Response.Allowed:
		return "allowed", ""
	default:
		return fmt.Sprintf("refused %d", answer.Response.Status.Code), answer.Response.Status.Message
	}
}

type result struct {
	Mode              string             `json:"mode"`
	RequestsPerSecond float64            `json:"requestsPerSecond"`
	P50Ms             float64            `json:"p50Ms"`
	P90Ms             float64            `json:"p90Ms"`
	P99Ms             float64            `json:"p99Ms"`
	MaxMs             float64            `json:"maxMs"`
	Verdicts          map[string]int     `json:"verdicts"`
	StatusWrites      map[string]float64 `json:"statusWrites"`
	// The first message of each verdict.
	Messages  map[string]string `json:"messages"`
	BodyBytes int               `json:"bodyBytes"`
}

func main() {
	flag.Parse()
	targets := strings.Split(*urls, ",")
	appOf := func(int) string { return *run }
	if *mode == "wide" {
		appOf = func(index int) string { return fmt.Sprintf("%s-%d", *run, index) }
	}
	if *setup {
		createProtectors(appOf)
	}
	bodies := make([][]byte, *count)
	for index := range bodies {
		bodies[index] = review(index, appOf(index))
	}
	before := statusWrites()
	latencies := make([]time.Duration, *count)
	verdicts, messages := map[string]int{}, map[string]string{}
	next := int64(-1)
	var mutex sync.Mutex
	var group sync.WaitGroup
	started := time.Now()
	for worker := 0; worker < *concurrency; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				index := int(atomic.AddInt64(&next, 1))
				if index >= *count {
					return
				}
				sent := time.Now()
				verdict, message := send(targets[index%len(targets)], bodies[index])
				latencies[index] = time.Since(sent)
				mutex.Lock()
				verdicts[verdict]++
				if _, known := messages[verdict]; !known && message != "" {
					messages[verdict] = fmt.Sprintf("%.300s", message)
				}
				mutex.Unlock()
			}
		}()
	}
	group.Wait()
	took := time.Since(started)
	writes := statusWrites()
	for key, value := range before {
		writes[key] -= value
	}
	sort.Slice(latencies, func(a, b int) bool { return latencies[a] < latencies[b] })
	quantile := func(q float64) float64 {
		return float64(latencies[int(q*float64(len(latencies)-1))].Microseconds()) / 1000
	}
	check(json.NewEncoder(os.Stdout).Encode(result{
		Mode: *mode, RequestsPerSecond: float64(*count) / took.Seconds(),
		P50Ms: quantile(.5), P90Ms: quantile(.9), P99Ms: quantile(.99), MaxMs: quantile(1),
		Verdicts: verdicts, StatusWrites: writes, Messages: messages, BodyBytes: len(bodies[0]),
	}))
}
