{{/* The steps of the Job, in their order, as YAML: a list of name and args. */}}
{{- define "pgsemaphore.migrateSteps" -}}
{{- if .Values.migrations.enabled }}
- {name: migrate, args: [migrate]}
{{- if .Values.migrations.createRoles }}
- {name: roles, args: [roles, create]}
{{- end }}
{{- end }}
{{- if .Values.policies }}
- name: policies
  args: [policy, apply, --file, /etc/pgsemaphore/policies/policies.json{{ if .Values.forcePolicies }}, --force{{ end }}]
{{- end }}
{{- end }}

{{/* The file that `policy apply` reads. */}}
{{- define "pgsemaphore.policies" -}}
{{- dict "policies" .Values.policies | toJson }}
{{- end }}

{{/* A step as a container: dict "root" "step". */}}
{{- define "pgsemaphore.migrateContainer" -}}
name: {{ .step.name }}
{{ include "pgsemaphore.container" .root }}
args: {{- toYaml .step.args | nindent 2 }}
env: {{- include "pgsemaphore.databaseEnv" (dict "root" .root "direct" true) | nindent 2 }}
  {{- with .root.Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.migrations.resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "pgsemaphore.migrateMounts" . | trim }}
volumeMounts: {{- . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "pgsemaphore.migrateMounts" -}}
{{ include "pgsemaphore.databaseMounts" (dict "root" .root "direct" true) }}
{{- if eq .step.name "policies" }}
{{ include "pgsemaphore.mount" "policies" }}
{{- end }}
{{- end }}

{{- define "pgsemaphore.migrateVolumes" -}}
{{ include "pgsemaphore.databaseVolumes" (dict "root" . "direct" true) }}
{{- if .Values.policies }}
- name: policies
  configMap: {name: {{ include "pgsemaphore.fullname" . }}-policies}
{{- end }}
{{- end }}

{{/* The pod of the Job. Whatever it depends on is in it, so that its checksum names the Job. */}}
{{- define "pgsemaphore.migratePod" -}}
{{- $steps := include "pgsemaphore.migrateSteps" . | fromYamlArray }}
{{- $password := default .Values.database.password .Values.database.direct.password }}
metadata:
  labels: {{- include "pgsemaphore.releaseLabels" . | nindent 4 }}
    app.kubernetes.io/component: migrate
    {{- with .Values.migrations.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or .Values.migrations.podAnnotations .Values.policies $password }}
  annotations:
    {{- if .Values.policies }}
    checksum/policies: {{ include "pgsemaphore.policies" . | sha256sum }}
    {{- end }}
    {{- if $password }}
    checksum/database-password: {{ include "pgsemaphore.passwordChecksum" $password }}
    {{- end }}
    {{- with .Values.migrations.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  restartPolicy: OnFailure
  {{- include "pgsemaphore.podSpec" . | nindent 2 }}
  {{- with initial $steps }}
  initContainers:
    {{- range . }}
    - {{- include "pgsemaphore.migrateContainer" (dict "root" $ "step" .) | nindent 6 }}
    {{- end }}
  {{- end }}
  containers:
    - {{- include "pgsemaphore.migrateContainer" (dict "root" . "step" (last $steps)) | nindent 6 }}
  {{- with include "pgsemaphore.migrateVolumes" . | trim }}
  volumes: {{- . | nindent 4 }}
  {{- end }}
{{- end }}
