package procnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volume returns the folder of a volume.
func (p *pod) volume(ctx context.Context, v core.Volume) (string, error) {
	folder := filepath.Join(p.folder, "volumes", v.Name)
	switch {
	case v.HostPath != nil:
		return p.hostPath(v.HostPath)
	case v.EmptyDir != nil:
		return folder, p.mkdir(folder)
	case v.Secret != nil:
		return folder, p.files(folder, v.Secret.DefaultMode, func() (map[string][]byte, error) {
			return p.secret(ctx, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
		})
	case v.Projected != nil:
		return folder, p.files(folder, v.Projected.DefaultMode, func() (map[string][]byte, error) {
			return p.projected(ctx, v.Projected)
		})
	}
	return "", fmt.Errorf("volume %s: procnode does not know its kind", v.Name)
}

// hostPath returns a path below the node's root folder.
func (p *pod) hostPath(v *core.HostPathVolumeSource) (string, error) {
	path := filepath.Join(p.node.root, v.Path)
	if v.Type != nil && *v.Type == core.HostPathDirectoryOrCreate {
		return path, os.MkdirAll(path, 0o755) // #nosec G301 -- as a kubelet does
	}
	info, err := os.Stat(path)
	if err == nil && v.Type != nil && *v.Type == core.HostPathDirectory && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", v.Path)
	}
	return path, err
}

// mkdir makes the folder of a volume. Its group is the pod's.
func (p *pod) mkdir(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { // #nosec G301 -- containers' users read it
		return err
	}
	if err := os.Chmod(folder, 0o777); err != nil { // #nosec G302 -- as an emptyDir
		return err
	}
	return p.own(folder)
}

func (p *pod) own(path string) error {
	if c := p.object.Spec.SecurityContext; c != nil && c.FSGroup != nil && os.Getenv(isolated) == "all" {
		return os.Chown(path, 0, int(*c.FSGroup))
	}
	return nil
}

// files writes the files of a volume.
func (p *pod) files(folder string, mode *int32, read func() (map[string][]byte, error)) error {
	all, err := read()
	if err != nil {
		return err
	}
	if err := p.mkdir(folder); err != nil {
		return err
	}
	m := os.FileMode(0o644)
	if mode != nil {
		m = os.FileMode(*mode) // #nosec G115 -- validated by the API server
	}
	c := p.object.Spec.SecurityContext
	if c != nil && c.FSGroup != nil {
		m |= 0o440
	}
	for name, text := range all {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, text, m); err != nil {
			return err
		}
		if err := p.own(path); err != nil {
			return err
		}
	}
	return nil
}

func (p *pod) secret(ctx context.Context, name string, items []core.KeyToPath,
	optional *bool) (map[string][]byte, error) {
	may := optional != nil && *optional
	o, err := p.cluster.kube.CoreV1().Secrets(p.object.Namespace).Get(ctx, name, meta.GetOptions{})
	if apierrors.IsNotFound(err) && may {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return chosen(o.Data, items, may)
}

// chosen returns the items of a Secret or a ConfigMap: all without a list.
func chosen(all map[string][]byte, items []core.KeyToPath, optional bool) (map[string][]byte, error) {
	if len(items) == 0 {
		return all, nil
	}
	out := map[string][]byte{}
	for _, i := range items {
		text, ok := all[i.Key]
		if !ok && !optional {
			return nil, fmt.Errorf("it has no key %s", i.Key)
		}
		if ok {
			out[i.Path] = text
		}
	}
	return out, nil
}

// projected returns the files of a ServiceAccount: its token, the authority of the API server, and the namespace.
func (p *pod) projected(ctx context.Context, v *core.ProjectedVolumeSource) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, s := range v.Sources {
		switch {
		case s.ServiceAccountToken != nil:
			pod := &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.object.Name,
				UID: p.object.UID}
			r, err := p.cluster.kube.CoreV1().ServiceAccounts(p.object.Namespace).CreateToken(ctx,
				p.object.Spec.ServiceAccountName, &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{
					ExpirationSeconds: s.ServiceAccountToken.ExpirationSeconds, BoundObjectRef: pod}}, meta.CreateOptions{})
			if err != nil {
				return nil, err
			}
			out[s.ServiceAccountToken.Path] = []byte(r.Status.Token)
		case s.ConfigMap != nil:
			o, err := p.cluster.kube.CoreV1().ConfigMaps(p.object.Namespace).Get(ctx, s.ConfigMap.Name, meta.GetOptions{})
			if err != nil {
				return nil, err
			}
			for _, i := range s.ConfigMap.Items {
				out[i.Path] = []byte(o.Data[i.Key])
			}
		case s.DownwardAPI != nil:
			for _, i := range s.DownwardAPI.Items {
				text, err := p.field(i.FieldRef)
				if err != nil {
					return nil, err
				}
				out[i.Path] = []byte(text)
			}
		default:
			return nil, errors.New("procnode does not know this projection")
		}
	}
	return out, nil
}

// field returns a field of the pod.
func (p *pod) field(f *core.ObjectFieldSelector) (string, error) {
	switch f.FieldPath {
	case "spec.nodeName":
		return p.node.name, nil
	case "metadata.namespace":
		return p.object.Namespace, nil
	case "metadata.name":
		return p.object.Name, nil
	case "status.podIP":
		return p.address, nil
	}
	return "", fmt.Errorf("procnode does not know the field %s", f.FieldPath)
}
