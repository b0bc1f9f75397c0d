package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
	"github.com/forkd/forkd/internal/kube/preload"
)

// Artifact is a snapshot on its way from a registry to a node.
type Artifact interface {
	// Probe sends the beginning, by which a node tells whether it can run the snapshot.
	Probe(send func(io.Reader) error) error
	// Fetch downloads the rest.
	Fetch(context.Context) error
	// Send sends the snapshot.
	Send(send func(io.Reader) error) error
	// Close removes what was downloaded.
	Close() error
}

// OpenArtifact reads the description of the snapshot HOST/REPOSITORY@sha256:DIGEST. login is the content of Docker's
// config.json, or nil. Errors may have a method Reason, with the reason of a condition.
type OpenArtifact func(ctx context.Context, ref string, login []byte) (Artifact, error)

// Reasons of snapshots from registries, beside those of the errors.
const (
	reasonNoRegistry      = "RegistryNotAllowed"
	reasonSecretNotFound  = "SecretNotFound"
	reasonSecretForbidden = "SecretForbidden"
	reasonInvalidArtifact = agents.InvalidConfiguration
)

// labelled adds the labels of an object to the snapshot that was made for it: registries and peers send none.
func labelled(ctx context.Context, at *client.Client, tag string, labels map[string]string) error {
	_, err := client.LabelSnapshot(ctx, at, tag, api.LabelsRequest{Set: labels})
	if err != nil {
		return refusal(err)
	}
	return nil
}

// pull gets a snapshot from a registry. It is sent to one node: others copy it when they need it.
func (r *snapshotObjects) pull(ctx context.Context, s *forkdkinds.SandboxSnapshot, tag string) error {
	from := s.Spec.Source.Artifact
	if r.cfg.Artifact == nil {
		return &problem{reasonNoRegistry, "the operator of the cluster allows no registries",
			time.Minute}
	}
	login, err := r.login(ctx, s.Namespace, from.SecretRef)
	if err != nil {
		return err
	}
	a, err := r.cfg.Artifact(ctx, from.Ref, login)
	if err != nil {
		return reasoned(err)
	}
	defer a.Close()
	node, err := r.accepting(ctx, s, tag, a)
	if err != nil {
		return err
	}
	if err := a.Fetch(ctx); err != nil {
		return reasoned(err)
	}
	err = a.Send(func(stream io.Reader) error {
		_, err := node.ImportSnapshot(ctx, tag, stream)
		return err
	})
	if err != nil && client.CodeOf(err) != api.CodeConflict { // an earlier attempt has arrived
		return reasoned(err)
	}
	return nil
}

// accepting returns the first node that can run a snapshot. Each snapshot has an order of its own.
func (r *snapshotObjects) accepting(ctx context.Context, s *forkdkinds.SandboxSnapshot, tag string,
	a Artifact) (*client.Client, error) {
	nodes, err := r.inOrder(string(s.UID))
	if err != nil {
		return nil, err
	}
	var all []error
	for _, node := range nodes {
		err := a.Probe(func(stream io.Reader) error { return node.CheckSnapshot(ctx, tag, stream) })
		if err == nil {
			return node, nil
		}
		all = append(all, err)
	}
	if len(all) == 0 {
		return nil, &problem{agents.DependenciesNotReady, "no node answers", 2 * time.Second}
	}
	return nil, reasoned(errors.Join(all...))
}

func (r *snapshotObjects) inOrder(uid string) (out []*client.Client, err error) {
	if r.cfg.Nodes == nil || r.cfg.Node == nil {
		return []*client.Client{r.fleet.Client()}, nil
	}
	var names []string
	for _, n := range r.cfg.Nodes.All() {
		if n.Up() {
			names = append(names, n.Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(preload.Rank(uid, a), preload.Rank(uid, b)) })
	for _, name := range names {
		c, err := r.cfg.Node(name)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// login reads the credentials of a Secret in the object's own namespace. Roles there allow it.
func (r *snapshotObjects) login(ctx context.Context, namespace string,
	ref *forkdkinds.SecretReference) ([]byte, error) {
	if ref == nil {
		return nil, nil
	}
	var secret corev1.Secret
	err := r.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &problem{reasonSecretNotFound, fmt.Sprintf("namespace %s has no Secret %s", namespace, ref.Name),
			10 * time.Second}
	case apierrors.IsForbidden(err):
		return nil, &problem{reasonSecretForbidden, fmt.Sprintf("the operator may not read the Secret %s: "+
			"bind a Role with the verb get for it to the operator's ServiceAccount", ref.Name), 10 * time.Second}
	case err != nil:
		return nil, err
	}
	text, ok := secret.Data[corev1.DockerConfigJsonKey]
	if secret.Type != corev1.SecretTypeDockerConfigJson || !ok {
		return nil, invalid(fmt.Errorf("the Secret %s has the type %s, want %s", ref.Name, secret.Type,
			corev1.SecretTypeDockerConfigJson))
	}
	return text, nil
}

// reasoned makes a problem of an error about an artifact.
func reasoned(err error) error {
	var known interface{ Reason() string }
	if !errors.As(err, &known) {
		return refusal(err)
	}
	again := 10 * time.Second
	if known.Reason() == reasonInvalidArtifact {
		again = time.Minute
	}
	return &problem{known.Reason(), err.Error(), again}
}

// digestOf returns the digest of a reference.
func digestOf(ref string) string {
	_, digest, _ := strings.Cut(ref, "@")
	return digest
}
