package router

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Kubernetes asks the API server whether callers may use the sandboxes of a namespace. It asks with the caller's own
// token (SelfSubjectAccessReview), so the gateway needs no right in the cluster.
type Kubernetes struct {
	// URL is the address of the API server.
	URL string
	// HTTP sends the requests, without a credential of its own.
	HTTP *http.Client

	mu    sync.Mutex // guards known
	known map[question]verdict
}

// question is a token's digest and a namespace.
type question struct {
	token     [sha256.Size]byte
	namespace string
}

type verdict struct {
	err   error
	until time.Time
}

// trust is the time that an answer is used for. A withdrawn right ends then.
const trust = 30 * time.Second

// Allowed implements Config.Allowed. Callers need the right to create sandboxes/exec in the group agents.x-k8s.io.
func (k *Kubernetes) Allowed(ctx context.Context, r *http.Request, namespace string) error {
	token, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !is || token == "" || len(token) > 16<<10 {
		return refuse(http.StatusUnauthorized, "the header Authorization has no token of Kubernetes")
	}
	q := question{sha256.Sum256([]byte(token)), namespace}
	k.mu.Lock()
	v, ok := k.known[q]
	k.mu.Unlock()
	if ok && time.Now().Before(v.until) {
		return v.err
	}
	err := k.ask(ctx, token, namespace)
	var refusal *Refusal
	if err != nil && (!errors.As(err, &refusal) || refusal.Status == http.StatusBadGateway) {
		return err // unknown, and asked again
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil || len(k.known) >= maxKept {
		k.known = map[question]verdict{}
	}
	k.known[q] = verdict{err, time.Now().Add(trust)}
	return err
}

func (k *Kubernetes) ask(ctx context.Context, token, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	body, err := json.Marshal(map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]string{"namespace": namespace, "verb": "create",
			"group": "agents.x-k8s.io", "resource": "sandboxes", "subresource": "exec"}}})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		strings.TrimSuffix(k.URL, "/")+"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := k.HTTP.Do(r)
	if err != nil {
		return refuse(http.StatusBadGateway, "the API server of Kubernetes does not answer")
	}
	defer resp.Body.Close()
	var review struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&review)
	switch {
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		return refuse(http.StatusUnauthorized, "Kubernetes does not accept the token")
	case resp.StatusCode >= 300 || err != nil:
		return refuse(http.StatusBadGateway, "the API server of Kubernetes answered %d", resp.StatusCode)
	case !review.Status.Allowed:
		return refuse(http.StatusForbidden, "the caller may not create sandboxes/exec in namespace %s", namespace)
	}
	return nil
}
