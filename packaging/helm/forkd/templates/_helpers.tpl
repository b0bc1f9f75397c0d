{{- define "forkd.fullname" -}}
{{- if contains "forkd" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-forkd" (.Release.Name | trunc 34) }}{{ end }}
{{- end }}

{{- define "forkd.selector" -}}
app.kubernetes.io/name: forkd
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "forkd.labels" -}}
{{ include "forkd.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "forkd.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "forkd.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "forkd.authSecret" -}}
{{ .Values.auth.existingSecret | default (printf "%s-auth" (include "forkd.fullname" .)) }}
{{- end }}

{{- define "forkd.tlsSecret" -}}
{{ .Values.tls.existingSecret | default (printf "%s-node-tls" (include "forkd.fullname" .)) }}
{{- end }}

{{- define "forkd.gatewayTLSSecret" -}}
{{- if eq .Values.gateway.tls "secret" }}{{ required "gateway.tls=secret needs gateway.tlsSecret" .Values.gateway.tlsSecret }}{{ else }}{{ include "forkd.fullname" . }}-gateway-tls{{ end }}
{{- end }}

{{- /* Not empty if the gateway has a key to resume sandboxes at other nodes. These copy them as peers. */ -}}
{{- define "forkd.resumeElsewhere" -}}
{{- if and .Values.gateway.resumeElsewhere .Values.node.peers.enabled }}true{{ end }}
{{- end }}

{{- /* Containers that need no rights. */ -}}
{{- define "forkd.noRights" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}
