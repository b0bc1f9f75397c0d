package build

import (
	"context"
	"errors"
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Registry makes images from container images in registries. Each call is for the principal of its context.
type Registry interface {
	// Check returns an error for a text that is no reference, for keys that cannot be for it, or if the principal may
	// not use its registry. It sends no request.
	Check(ctx context.Context, r Reference) error
	// Here returns the name of an image of this host that was made from the reference.
	Here(ctx context.Context, ref string) (image string, ok bool)
	// Resolve asks the registry for an image. With AWS's keys, it asks AWS for a password first, each time.
	Resolve(ctx context.Context, r Reference) (Pulled, error)
}

// Reference names an image in a registry.
type Reference struct {
	// Ref is HOST/REPOSITORY:TAG or @DIGEST. Without a host, it is an image of Docker Hub.
	Ref string
	// Username and Password are the request's. They may be empty.
	Username, Password string
	// AWS has the keys for a password of Amazon's registry, or is nil. Username and Password are then empty.
	AWS *AWSKeys
}

// AWSKeys are those of a user of AWS, and the region of the registry. They are as the client sent them.
type AWSKeys struct{ AccessKeyID, SecretAccessKey, Region string }

// Anonymous reports whether a reference has no credentials.
func (r Reference) Anonymous() bool { return r.Username == "" && r.Password == "" && r.AWS == nil }

// Pulled is an image in a registry.
type Pulled interface {
	// Digest returns the digest of the image's manifest.
	Digest() string
	// Make returns the name of an image for a snapshot. It exists until Close.
	Make(ctx context.Context, say func(string)) (image string, err error)
	Close() error
}

// credentials are the registry of a request, by its Type.
type credentials struct {
	// Type is registry, gcp or aws.
	Type string `json:"type"`
	// Username and Password are those of a registry.
	Username string `json:"username"`
	Password string `json:"password"`
	// ServiceAccount is the key of an account of Google's cloud, as JSON.
	ServiceAccount string `json:"serviceAccountJson"`
	// The rest are the keys of a user of AWS, and the registry's region.
	AccessKeyID     string `json:"awsAccessKeyId"`
	SecretAccessKey string `json:"awsSecretAccessKey"`
	Region          string `json:"awsRegion"`
}

// reference returns an image of a registry with its credentials.
func (c *credentials) reference(ref string) (Reference, error) {
	switch {
	case c == nil:
		return Reference{Ref: ref}, nil
	case c.Type == "registry":
		return Reference{Ref: ref, Username: c.Username, Password: c.Password}, nil
	case c.Type == "gcp":
		return Reference{Ref: ref, Username: "_json_key", Password: c.ServiceAccount}, nil
	case c.Type == "aws":
		return Reference{Ref: ref, AWS: &AWSKeys{c.AccessKeyID, c.SecretAccessKey, c.Region}}, nil
	}
	return Reference{}, sandbox.Errorf(sandbox.ErrInvalid, "", "registry type %q is none of registry, gcp and aws",
		sandbox.Clip(c.Type))
}

// provisioned is part of the cache key of bases from registries. Increase it if they are to be made again.
const provisioned = 1

// onImage returns a base from a registry, or from an image of this host that was made from the same reference.
func (j *job) onImage(ctx context.Context, ref Reference) (result, error) {
	from := j.b.cfg.Registry
	r, err := func() (result, error) {
		if name, ok := from.Here(ctx, ref.Ref); ok && ref.Anonymous() {
			return j.onLocal(ctx, name)
		}
		return j.onPulled(ctx, ref)
	}()
	r.fresh = true
	r.key = keyOf("provisioned", provisioned, r.key)
	r.context = j.b.cfg.Account
	return r, err
}

func (j *job) onPulled(ctx context.Context, ref Reference) (result, error) {
	img, err := j.b.cfg.Registry.Resolve(ctx, ref)
	if err != nil {
		return result{}, err
	}
	r, err := j.imageLayer(ctx, keyOf("registry", j.owner, img.Digest(), j.cpus, j.memory), func() (string, error) {
		return img.Make(ctx, func(text string) { j.log.say(LevelInfo, baseStep, "[base] "+text) })
	})
	if bad := img.Close(); bad != nil {
		j.b.cfg.Log.Warn("remove a pulled image", "build", j.id, "error", bad)
	}
	return r, err
}

// provision makes the account of E2B's images in a guest.
func (j *job) provision(ctx context.Context, g *guest) error {
	_, err := g.run(ctx, script(j.b.cfg.Prepare, j.b.cfg.Account.User, "true"))
	if err == nil {
		return nil
	}
	var f *failure
	if errors.As(err, &f) && f.stderr == "" && f.stdout == "" {
		return fmt.Errorf("prepare the image: %s (a template needs an image with /bin/sh)", explain(err))
	}
	return fmt.Errorf("prepare the image: %s", explain(err))
}
