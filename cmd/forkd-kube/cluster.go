package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/kube/endpoints"
	"github.com/forkd/forkd/internal/kube/nodes"
)

// clusterOptions name nodes that are pods of Kubernetes.
type clusterOptions struct {
	service, port         string
	token, ca, serverName string
	kubeconfig            string
}

func (o *clusterOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.service, "nodes-service", "",
		"find nodes by the headless service `NAMESPACE/NAME`: its pods run forkd serve with the name of their node")
	f.StringVar(&o.port, "nodes-port", "", "use the service's port `NAME` (default: the first one)")
	f.StringVar(&o.token, "nodes-token-file", "", "read the key for GET /v1/node of these nodes from `FILE`")
	f.StringVar(&o.ca, "nodes-ca-file", "",
		"reach these nodes by TLS, with certificates signed by `FILE` (default: plain HTTP)")
	f.StringVar(&o.serverName, "nodes-server-name", "",
		"expect `NAME` in the certificates of these nodes (default: their addresses)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "reach the API server by `FILE` (default: the pod's service account)")
}

func (o *clusterOptions) given() bool { return o.service != "" }

// names returns the namespace and the name of the service.
func (o *clusterOptions) names() (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(o.service, "/")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, "/")
}

// check returns the mistakes, also beside a list of nodes.
func (o *clusterOptions) check(list string) (wrong []error) {
	if !o.given() {
		return nil
	}
	if list != "" {
		wrong = append(wrong, errors.New("--nodes and --nodes-service exclude each other"))
	}
	if _, _, ok := o.names(); !ok {
		wrong = append(wrong, fmt.Errorf("--nodes-service is %q, want NAMESPACE/NAME", o.service))
	}
	if o.token == "" {
		wrong = append(wrong, errors.New("--nodes-token-file is missing: it has a key of the operator with the scope read"))
	}
	if o.serverName != "" && o.ca == "" {
		wrong = append(wrong, errors.New("--nodes-server-name needs --nodes-ca-file"))
	}
	return wrong
}

// sourceOr returns the nodes of the service if there is one, and otherwise those of a list.
func (o *clusterOptions) sourceOr(list string, log *slog.Logger) (nodes.Source, error) {
	if o.given() {
		return o.source(log)
	}
	file := nodes.File{Path: list}
	if _, err := file.Read(); err != nil { // later changes are judged by the set
		return nil, exit.UsageError{Err: fmt.Errorf("--nodes: %w", err)}
	}
	return file, nil
}

func (o *clusterOptions) source(log *slog.Logger) (nodes.Source, error) {
	config, err := o.rest()
	if err != nil {
		return nil, exit.UsageError{Err: err}
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	namespace, name, _ := o.names()
	return endpoints.Source{Client: client, Namespace: namespace, Service: name, Port: o.port,
		TokenFile: o.token, CAFile: o.ca, ServerName: o.serverName, Log: log}, nil
}

// rest returns the connection to the API server, of a kubeconfig or of a pod.
func (o *clusterOptions) rest() (*rest.Config, error) {
	if o.kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("--kubeconfig is missing, and this is no pod of a cluster")
		}
		return config, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return config, nil
}
