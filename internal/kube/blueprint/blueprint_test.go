package blueprint_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/forkd/forkd/internal/kube/blueprint"
	"github.com/forkd/forkd/internal/kube/objects/agents"
)

func of(spec string) agents.Blueprint {
	return agents.Blueprint{PodTemplate: agents.PodTemplate{Spec: runtime.RawExtension{Raw: []byte(spec)}}}
}

var named = map[string]string{blueprint.AnnotationSnapshot: "py"}

func TestAPodTemplateBecomesAPlan(t *testing.T) {
	b := of(`{"restartPolicy":"Never","automountServiceAccountToken":false,"volumes":[],"containers":[{"name":"main",
		"image":"python:3.12","ports":[{"containerPort":8888}],"env":[{"name":"A","value":"1"}],
		"resources":{"limits":{"memory":"512Mi","cpu":"2"},"requests":{"memory":"512Mi"}}}]}`)
	b.PodTemplate.Metadata.Labels = map[string]string{"app": "x", "kube.namespace": "other",
		"agents.x-k8s.io/claim-uid":    "1",
		"extensions.agents.x-k8s.io/a": "1", "forkd.dev/a": "1"}
	p, err := blueprint.Read(b, named)
	if err != nil {
		t.Fatal(err)
	}
	if p.Snapshot != "py" || p.Env["A"] != "1" || p.MemoryBytes != 512<<20 || p.MilliCPU != 2000 || p.Container != "main" {
		t.Errorf("the plan is %+v", p)
	}
	if len(p.Labels) != 1 || p.Labels["app"] != "x" {
		t.Errorf("labels %v, want only app: reserved ones are dropped", p.Labels)
	}
	if err := p.Fits(blueprint.Shape{MemoryMiB: 512, VCPUs: 2}); err != nil {
		t.Error(err)
	}
	if err := p.Fits(blueprint.Shape{MemoryMiB: 256, VCPUs: 2}); err == nil || !strings.Contains(err.Error(),
		"limits.memory") {
		t.Errorf("another size of memory is %v", err)
	}
}

func TestFieldsWithoutAMeaningAreRefusedByName(t *testing.T) {
	yes := true
	withService := of(`{"containers":[{"name":"a"}]}`)
	withService.Service = &yes
	withVolumes := of(`{"containers":[{"name":"a"}]}`)
	withVolumes.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(`{"metadata":{"name":"v"}}`)}}
	for name, tt := range map[string]struct {
		b    agents.Blueprint
		want string
	}{
		"two containers": {of(`{"containers":[{"name":"a"},{"name":"b"}]}`), "podTemplate.spec.containers[1]"},
		"no container":   {of(`{"containers":[]}`), "podTemplate.spec.containers"},
		"init containers": {of(`{"initContainers":[{"name":"a"}],"containers":[{"name":"a"}]}`),
			"podTemplate.spec.initContainers"},
		"volumes": {of(`{"volumes":[{"name":"v"}],"containers":[{"name":"a"}]}`), "podTemplate.spec.volumes"},
		"service account": {of(`{"serviceAccountName":"x","containers":[{"name":"a"}]}`),
			"podTemplate.spec.serviceAccountName"},
		"restart policy": {of(`{"restartPolicy":"Always","containers":[{"name":"a"}]}`),
			"podTemplate.spec.restartPolicy"},
		"runtime class": {of(`{"runtimeClassName":"gvisor","containers":[{"name":"a"}]}`),
			"podTemplate.spec.runtimeClassName"},
		"host network": {of(`{"hostNetwork":true,"containers":[{"name":"a"}]}`), "podTemplate.spec.hostNetwork"},
		"command":      {of(`{"containers":[{"name":"a","command":["sh"]}]}`), "containers[0].command"},
		"security context": {of(`{"containers":[{"name":"a","securityContext":{"privileged":true}}]}`),
			"containers[0].securityContext"},
		"probe": {of(`{"containers":[{"name":"a","readinessProbe":{"httpGet":{}}}]}`),
			"containers[0].readinessProbe"},
		"value from elsewhere": {of(`{"containers":[{"name":"a","env":[{"name":"A","valueFrom":{"secretKeyRef":{}}}]}]}`), "env[0].valueFrom"},
		"name of a variable":   {of(`{"containers":[{"name":"a","env":[{"name":"A=B","value":"1"}]}]}`), "env[0]"},
		"requests below limits": {of(`{"containers":[{"name":"a","resources":{"requests":{"cpu":"1"}}}]}`),
			"resources.requests"},
		"GPUs": {of(`{"containers":[{"name":"a","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}`),
			"limits.nvidia.com/gpu"},
		"service":       {withService, "service"},
		"volume claims": {withVolumes, "volumeClaimTemplates"},
		"no object":     {of(`7`), "podTemplate.spec"},
		"nothing":       {of(``), "podTemplate.spec"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := blueprint.Read(tt.b, named); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one about %s", err, tt.want)
			}
		})
	}
}

func TestASnapshotIsNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		image, annotation, want string
	}{
		"neither":            {"", "", "no snapshot"},
		"a container image":  {"docker.io/library/python:3.12", "", "no boot image of forkd"},
		"a path":             {"", "../../etc", "no name of a snapshot"},
		"a boot image":       {"python-numpy", "", ""},
		"a snapshot":         {"", "team.base-1", ""},
		"a flag as snapshot": {"", "-x", "no name of a snapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			b := of(`{"containers":[{"name":"a","image":"` + tt.image + `"}]}`)
			_, err := blueprint.Read(b, map[string]string{blueprint.AnnotationSnapshot: tt.annotation})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func FuzzPodSpec(f *testing.F) {
	f.Add([]byte(`{"containers":[{"name":"a","env":[{"name":"A","value":"1"}],"resources":{"limits":{"memory":"1Gi"}}}]}`))
	f.Add([]byte(`{"containers":[{"resources":{"requests":{"cpu":"1e9999"}}}],"x":1}`))
	f.Fuzz(func(t *testing.T, spec []byte) {
		p, err := blueprint.Read(of(string(spec)), named)
		if err == nil && (p.MemoryBytes < 0 || p.MilliCPU < 0) {
			t.Errorf("%q makes limits %d and %d", spec, p.MemoryBytes, p.MilliCPU)
		}
	})
}
