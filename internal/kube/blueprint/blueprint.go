package blueprint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/kube/objects/agents"
)

// AnnotationSnapshot names the snapshot to fork.
const AnnotationSnapshot = "forkd.dev/snapshot"

// maxSpec limits a PodSpec, in bytes. The API server's limit of an object is larger.
const maxSpec = 1 << 20

// Plan describes the sandboxes of a blueprint.
type Plan struct {
	// Snapshot is the name of the snapshot, or empty.
	Snapshot string
	// Image is the name of a boot image, if there is no snapshot.
	Image string
	// Container is the name of the only container.
	Container string
	// Env is the container's environment.
	Env map[string]string
	// MemoryBytes and MilliCPU are the container's limits, or 0.
	MemoryBytes, MilliCPU int64
	// Labels are the pod's labels, without reserved ones.
	Labels map[string]string
}

// Shape is the size of a snapshot's sandboxes.
type Shape struct {
	// MemoryMiB is the memory, VCPUs the number of processors.
	MemoryMiB, VCPUs int
}

// Fits returns an error if the limits differ from a snapshot's shape. A VM has the size of its snapshot.
func (p Plan) Fits(s Shape) error {
	if p.MemoryBytes != 0 && p.MemoryBytes != int64(s.MemoryMiB)<<20 {
		return fmt.Errorf("%s.resources.limits.memory is %d MiB, but the snapshot has %d MiB: remove the limit, or "+
			"make it equal",
			firstContainer, p.MemoryBytes>>20, s.MemoryMiB)
	}
	if p.MilliCPU != 0 && p.MilliCPU != int64(s.VCPUs)*1000 {
		return fmt.Errorf("%s.resources.limits.cpu is %dm, but the snapshot has %d: remove the limit, or make it equal",
			firstContainer, p.MilliCPU, s.VCPUs)
	}
	return nil
}

const (
	specPath       = "podTemplate.spec"
	firstContainer = specPath + ".containers[0]"
)

// name matches names of snapshots and images. Names of SandboxSnapshots may have dots, too.
var (
	snapshotName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)
	imageName    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	envName      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)
)

// Read returns the plan of a blueprint. annotations are those of the template, which count less than the pod's.
func Read(b agents.Blueprint, annotations map[string]string) (Plan, error) {
	var wrong []error
	if n := len(b.VolumeClaimTemplates); n > 0 {
		wrong = append(wrong, refused("volumeClaimTemplates", "sandboxes have no volumes"))
	}
	if b.Service != nil && *b.Service {
		wrong = append(wrong, refused("service", "a sandbox has no Service of its own: use the gateway"))
	}
	p, err := readSpec(b.PodTemplate.Spec)
	wrong = append(wrong, err)
	p.Labels = maps.Clone(b.PodTemplate.Metadata.Labels)
	maps.DeleteFunc(p.Labels, func(k, _ string) bool { return fleet.Reserved(k) })
	if p.Snapshot = b.PodTemplate.Metadata.Annotations[AnnotationSnapshot]; p.Snapshot == "" {
		p.Snapshot = annotations[AnnotationSnapshot]
	}
	switch {
	case p.Snapshot != "" && !snapshotName.MatchString(p.Snapshot):
		wrong = append(wrong, fmt.Errorf("annotation %s: %q is no name of a snapshot", AnnotationSnapshot, clip(p.Snapshot)))
	case p.Snapshot == "" && p.Image == "":
		wrong = append(wrong, fmt.Errorf("no snapshot: set the annotation %s, or %s.image to a boot image of forkd",
			AnnotationSnapshot, firstContainer))
	case p.Snapshot == "" && !imageName.MatchString(p.Image):
		wrong = append(wrong, fmt.Errorf("%s.image %q is no boot image of forkd: container images are not pulled, "+
			"so set the annotation %s", firstContainer, clip(p.Image), AnnotationSnapshot))
	}
	return p, errors.Join(wrong...)
}

// NetworkPolicy returns an error for a policy with rules.
func NetworkPolicy(raw *runtime.RawExtension) error {
	if raw == nil || empty(raw.Raw) {
		return nil
	}
	return refused("networkPolicy", "the snapshot has the network policy of its sandboxes")
}

func refused(path, why string) error { return fmt.Errorf("%s is not supported: %s", path, why) }

// clip shortens a user's text for a message.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

// fields is a JSON object with its fields undecoded.
type fields map[string]json.RawMessage

func readSpec(raw runtime.RawExtension) (p Plan, err error) {
	if len(raw.Raw) > maxSpec {
		return p, fmt.Errorf("%s has %d bytes, want at most %d", specPath, len(raw.Raw), maxSpec)
	}
	var spec fields
	if err := decode(raw.Raw, &spec); err != nil {
		return p, fmt.Errorf("%s: %w", specPath, err)
	}
	var wrong []error
	for _, k := range slices.Sorted(maps.Keys(spec)) {
		if why := badSpec(k, spec[k]); why != "" {
			wrong = append(wrong, refused(specPath+"."+clip(k), why))
		}
	}
	var containers []fields
	if err := decode(spec["containers"], &containers); err != nil || len(containers) == 0 {
		return p, errors.Join(append(wrong, fmt.Errorf("%s.containers: want one container", specPath))...)
	}
	if len(containers) > 1 {
		wrong = append(wrong, refused(specPath+".containers[1]", "a sandbox is one VM, so it has one container"))
	}
	wrong = append(wrong, readContainer(containers[0], &p))
	return p, errors.Join(wrong...)
}

// badSpec returns the reason against a field of a PodSpec, or an empty string. Values with the effect of an absent
// field are accepted.
func badSpec(name string, value json.RawMessage) string {
	switch name {
	case "containers":
		return ""
	case "restartPolicy":
		if is(value, "Never") {
			return ""
		}
		return "a VM that ends is not restarted, so the only accepted value is Never"
	case "runtimeClassName":
		if is(value, "forkd") {
			return ""
		}
		return "the only accepted value is forkd"
	case "automountServiceAccountToken", "enableServiceLinks", "hostNetwork", "hostPID", "hostIPC", "hostUsers":
		if is(value, false) {
			return ""
		}
		return "the only accepted value is false"
	}
	if empty(value) {
		return ""
	}
	return "it has no meaning for a VM"
}

func readContainer(c fields, p *Plan) error {
	var wrong []error
	for _, k := range slices.Sorted(maps.Keys(c)) {
		path := firstContainer + "." + clip(k)
		var err error
		switch k {
		case "name":
			err = decode(c[k], &p.Container)
		case "image":
			err = decode(c[k], &p.Image)
		case "env":
			p.Env, err = readEnv(c[k], path)
		case "resources":
			err = readResources(c[k], p)
		case "ports": // any port of a VM can be reached through the gateway
			var list []fields
			err = decode(c[k], &list)
		default:
			if !empty(c[k]) {
				err = refused(path, "it has no meaning for a VM")
			}
		}
		if err != nil && !strings.Contains(err.Error(), firstContainer) {
			err = fmt.Errorf("%s: %w", path, err)
		}
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

func readEnv(raw json.RawMessage, path string) (map[string]string, error) {
	var list []struct {
		Name      string          `json:"name"`
		Value     string          `json:"value"`
		ValueFrom json.RawMessage `json:"valueFrom"`
	}
	if err := decode(raw, &list); err != nil {
		return nil, err
	}
	env := map[string]string{}
	for i, v := range list {
		if !empty(v.ValueFrom) {
			return nil, refused(fmt.Sprintf("%s[%d].valueFrom", path, i), "only values are passed on")
		}
		if err := CheckEnvName(v.Name); err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", path, i, err)
		}
		env[v.Name] = v.Value
	}
	return env, nil
}

// CheckEnvName returns an error for a name that is no variable's.
func CheckEnvName(name string) error {
	if !envName.MatchString(name) {
		return fmt.Errorf("%q is no name of a variable", clip(name))
	}
	return nil
}

func readResources(raw json.RawMessage, p *Plan) error {
	var r fields
	if err := decode(raw, &r); err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(r)) {
		path := firstContainer + ".resources." + clip(k)
		if k != "limits" && k != "requests" {
			if empty(r[k]) {
				continue
			}
			return refused(path, "it has no meaning for a VM")
		}
		memory, cpu, err := amounts(r[k], path)
		if err != nil {
			return err
		}
		if k == "limits" {
			p.MemoryBytes, p.MilliCPU = memory, cpu
		} else if memory != 0 || cpu != 0 {
			if err := asLimits(r["limits"], memory, cpu, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// asLimits accepts requests that are equal to the limits.
func asLimits(limits json.RawMessage, memory, cpu int64, path string) error {
	lm, lc, err := amounts(limits, firstContainer+".resources.limits")
	if err != nil {
		return err
	}
	if memory != 0 && memory != lm || cpu != 0 && cpu != lc {
		return refused(path, "a VM has the size of its snapshot, so requests have to be equal to limits, or absent")
	}
	return nil
}

func amounts(raw json.RawMessage, path string) (memory, milliCPU int64, err error) {
	if empty(raw) {
		return 0, 0, nil
	}
	var all map[string]resource.Quantity
	if err := decode(raw, &all); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		q := all[k]
		switch k {
		case "memory":
			memory = q.Value()
		case "cpu":
			milliCPU = q.MilliValue()
		default:
			return 0, 0, refused(path+"."+clip(k), "want memory or cpu")
		}
		if q.Sign() < 0 {
			return 0, 0, fmt.Errorf("%s.%s is negative", path, k)
		}
	}
	return memory, milliCPU, nil
}

// decode reads one JSON value to its end.
func decode(raw json.RawMessage, v any) error {
	if len(raw) == 0 {
		return errors.New("it is missing")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows the value")
	}
	return nil
}

// empty reports whether a value has the effect of an absent one.
func empty(raw json.RawMessage) bool {
	switch strings.TrimSpace(string(raw)) {
	case "", "null", "{}", "[]", `""`, "false", "0":
		return true
	}
	return false
}

func is(raw json.RawMessage, want any) bool {
	var got any
	return json.Unmarshal(raw, &got) == nil && got == want
}
