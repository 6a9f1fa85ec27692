{{/* Refuses values that contradict each other, all mistakes at once: what is wrong, and what to set. */}}
{{- define "pgsemaphore.check" -}}
{{- $mistakes := list }}
{{- $database := .Values.database }}
{{- $direct := $database.direct }}
{{- if not (or .Values.auth.existingSecret .Values.insecure) }}
{{- $mistakes = append $mistakes "there are no tokens: set auth.existingSecret to a Secret that holds them, or insecure: true if the network is trusted" }}
{{- end }}
{{- if and .Values.auth.existingSecret .Values.insecure }}
{{- $mistakes = append $mistakes "auth.existingSecret and insecure: true contradict each other: set one of them" }}
{{- end }}
{{- if and .Values.auth.existingSecret (not (or .Values.auth.keys.client .Values.auth.keys.admin)) }}
{{- $mistakes = append $mistakes "nobody could ask for permits: set auth.keys.client or auth.keys.admin to a key of auth.existingSecret" }}
{{- end }}
{{- if not (or $database.host $database.url) }}
{{- $mistakes = append $mistakes "there is no database: set database.host, or database.url" }}
{{- end }}
{{- if and $database.host $database.url }}
{{- $mistakes = append $mistakes "database.host and database.url contradict each other: set one of them" }}
{{- end }}
{{- range $name, $url := dict "database.url" $database.url "database.direct.url" $direct.url }}
{{- if regexMatch "://[^/?#]*:[^/?#]*@|[?&]password=" $url }}
{{- $mistakes = append $mistakes (printf "%s holds a password: put it into a Secret, and set existingSecret beside it" $name) }}
{{- end }}
{{- end }}
{{- if and $database.existingSecret $database.password }}
{{- $mistakes = append $mistakes "database.existingSecret and database.password contradict each other: set one of them" }}
{{- end }}
{{- if and $database.ca.existingSecret (not $database.url) (not (hasPrefix "verify-" $database.sslmode)) }}
{{- $mistakes = append $mistakes "database.ca.existingSecret is used to verify only: set database.sslmode to verify-full" }}
{{- end }}
{{- if and $direct.host $direct.url }}
{{- $mistakes = append $mistakes "database.direct.host and database.direct.url contradict each other: set one of them" }}
{{- end }}
{{- if and $direct.existingSecret $direct.password }}
{{- $mistakes = append $mistakes "database.direct.existingSecret and database.direct.password contradict each other: set one of them" }}
{{- end }}
{{- if and (or $direct.port $direct.name $direct.user) (or $direct.url (and $database.url (not $direct.host))) }}
{{- $mistakes = append $mistakes "port, name and user of database.direct are ignored beside a url: put them into database.direct.url" }}
{{- end }}
{{- if and $database.pooler (not (or $direct.host $direct.url)) (or .Values.migrations.enabled .Values.policies) }}
{{- $mistakes = append $mistakes "migrations and policies don't go through a pooler: set database.direct.host to PostgreSQL itself" }}
{{- end }}
{{- if and .Values.tls.clientCA.existingSecret (not .Values.tls.existingSecret) }}
{{- $mistakes = append $mistakes "tls.clientCA.existingSecret needs TLS: set tls.existingSecret too" }}
{{- end }}
{{- if and .Values.migrations.createRoles (not .Values.migrations.enabled) }}
{{- $mistakes = append $mistakes "migrations.createRoles needs migrations.enabled: true" }}
{{- end }}
{{- if and .Values.networkPolicy.enabled $database.url (not .Values.networkPolicy.databasePorts) }}
{{- $mistakes = append $mistakes "the chart doesn't read the port in database.url: set networkPolicy.databasePorts" }}
{{- end }}
{{- if and .Values.networkPolicy.enabled $direct.url (not .Values.networkPolicy.databasePorts) }}
{{- $mistakes = append $mistakes "the chart doesn't read the port in database.direct.url: set networkPolicy.databasePorts" }}
{{- end }}
{{- with .Values.metrics.serviceMonitor }}
{{- if and .enabled $.Values.auth.existingSecret (not (or .tokenSecret.key $.Values.auth.keys.reader)) }}
{{- $mistakes = append $mistakes "Prometheus needs a reader's token: set auth.keys.reader, or metrics.serviceMonitor.tokenSecret" }}
{{- end }}
{{- end }}
{{- if $mistakes }}
{{- fail (printf "\n\nvalues of %s can't be used:\n- %s\n" .Chart.Name (join "\n- " $mistakes)) }}
{{- end }}
{{- end }}
