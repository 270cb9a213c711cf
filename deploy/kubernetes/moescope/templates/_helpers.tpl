{{/* Names, labels and the parts that every pod of moescope has. */}}

{{- define "moescope.name" -}}
{{- if contains "moescope" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-moescope" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* (dict "root" $ "part" "server") */}}
{{- define "moescope.selector" -}}
app.kubernetes.io/name: moescope
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "moescope.labels" -}}
{{ include "moescope.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "moescope.secret" -}}
{{ required "secrets.existingSecret is required: a Secret with the keys token, clickhouse-writer-password and clickhouse-reader-password. kubectl create secret generic moescope --from-literal=token=$(openssl rand -hex 24) --from-literal=clickhouse-writer-password=$(openssl rand -hex 24) --from-literal=clickhouse-reader-password=$(openssl rand -hex 24)" .Values.secrets.existingSecret }}
{{- end }}

{{- define "moescope.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "moescope.clickhouse.host" -}}
{{- if .Values.clickhouse.enabled -}}
{{ include "moescope.name" . }}-clickhouse
{{- else -}}
{{ required "clickhouse.external.host is required where clickhouse.enabled is false" .Values.clickhouse.external.host }}
{{- end -}}
{{- end }}

{{/* Before its password: the address of ClickHouse for one of the two users. (dict "root" $ "user" "reader") */}}
{{- define "moescope.dsn" -}}
{{- $external := .root.Values.clickhouse.external -}}
{{- $own := .root.Values.clickhouse.enabled -}}
{{- $scheme := ternary "http" (ternary "https" "http" $external.secure) $own -}}
{{- $port := ternary 8123 $external.httpPort $own | int -}}
{{ printf "%s://moescope_%s:$(CLICKHOUSE_PASSWORD)@%s:%d/%s" $scheme .user (include "moescope.clickhouse.host" .root) $port "moescope" }}
{{- end }}

{{- define "moescope.clickhouse.password" -}}
- name: CLICKHOUSE_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ include "moescope.secret" .root }}
      key: clickhouse-{{ .user }}-password
{{- end }}

{{- define "moescope.settings" -}}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "moescope.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "moescope.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A claim of a StatefulSet. (dict "name" "data" "persistence" .Values.x.persistence) */}}
{{- define "moescope.claim" -}}
- metadata:
    name: {{ .name }}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .persistence.storageClass }}
    storageClassName: {{ . }}
    {{- end }}
    resources:
      requests:
        storage: {{ .persistence.size }}
{{- end }}
