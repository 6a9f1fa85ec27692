{{- define "pgsemaphore.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 45 | trimSuffix "-" }}
{{- end }}

{{/* Short enough for every suffix that is put behind it. */}}
{{- define "pgsemaphore.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" }}
{{- else if contains (include "pgsemaphore.name" .) .Release.Name }}
{{- .Release.Name | trunc 45 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "pgsemaphore.name" .) | trunc 45 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* What never changes in the life of a release, of whatever pod. */}}
{{- define "pgsemaphore.releaseLabels" -}}
app.kubernetes.io/name: {{ include "pgsemaphore.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Selects the holders. */}}
{{- define "pgsemaphore.holderLabels" -}}
{{ include "pgsemaphore.releaseLabels" . }}
app.kubernetes.io/component: holder
{{- end }}

{{/* Of all objects, but not of pods: a new chart alone must not roll them. */}}
{{- define "pgsemaphore.labels" -}}
{{ include "pgsemaphore.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "pgsemaphore.serviceAccountName" -}}
{{- $default := ternary (include "pgsemaphore.fullname" .) "default" .Values.serviceAccount.create }}
{{- default $default .Values.serviceAccount.name }}
{{- end }}

{{- define "pgsemaphore.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "pgsemaphore.scheme" -}}
{{- ternary "https" "http" (not (empty .Values.tls.existingSecret)) }}
{{- end }}

{{/* All but what is the pods' own. */}}
{{- define "pgsemaphore.podSpec" -}}
serviceAccountName: {{ include "pgsemaphore.serviceAccountName" . }}
automountServiceAccountToken: false
# Else a Service named pgsemaphore would put variables among those that the server reads.
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
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

{{/* All but what is the containers' own. */}}
{{- define "pgsemaphore.container" -}}
image: {{ include "pgsemaphore.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.securityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Some keys of a Secret as a volume: dict "name" "secret" "items" (dict FILE KEY). */}}
{{- define "pgsemaphore.secretVolume" -}}
- name: {{ .name }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      {{- range $file, $key := .items }}
      - {key: {{ $key | quote }}, path: {{ $file | quote }}}
      {{- end }}
{{- end }}

{{/* Where such a volume is mounted: its name. */}}
{{- define "pgsemaphore.mount" -}}
- {name: {{ . }}, mountPath: /etc/pgsemaphore/{{ . }}, readOnly: true}
{{- end }}
