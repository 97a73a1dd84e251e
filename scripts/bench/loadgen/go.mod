module podseidon.kubewharf.io/bench/loadgen

go 1.22
